package apiserver

import (
	"errors"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// handlerConfig returns a client configuration with the identity of loopback whose requests call the handler, without TLS or a connection.
// The whole answer is buffered, so it is not for watches.
func handlerConfig(handler http.Handler, loopback *rest.Config) *rest.Config {
	cfg := rest.AnonymousClientConfig(loopback)
	cfg.TLSClientConfig = rest.TLSClientConfig{}
	cfg.Host = "http://in-process"
	cfg.BearerToken = loopback.BearerToken
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.QPS = -1
	cfg.Transport = transport{handler}
	return cfg
}

var errAborted = errors.New("the API server has given up the request")

type transport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. A handler that gives up an answer which it has begun, as when the request has timed out, panics, and only a
// server of package http would expect that.
func (t transport) RoundTrip(req *http.Request) (_ *http.Response, err error) {
	defer func() {
		if failure := recover(); failure == http.ErrAbortHandler {
			err = errAborted
		} else if failure != nil {
			panic(failure)
		}
	}()
	req = req.Clone(req.Context())
	req.RequestURI = req.URL.RequestURI()
	req.RemoteAddr = "127.0.0.1:0"
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/2.0", 2, 0 // as the loopback client would
	if req.Body == nil {
		req.Body = http.NoBody
	}
	answer := recorder{httptest.NewRecorder()}
	t.handler.ServeHTTP(answer, req)
	response := answer.Result()
	response.Request = req
	return response, nil
}

// recorder records an answer.
type recorder struct{ *httptest.ResponseRecorder }

// CloseNotify is required by the server's filters.
func (recorder) CloseNotify() <-chan bool { return nil }
