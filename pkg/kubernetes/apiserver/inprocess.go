package apiserver

import (
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// handlerConfig makes a client configuration with loopback's identity whose requests are answered by the handler
// itself: no TLS, no connection. It is for requests with short answers, not for watches.
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

type transport struct{ handler http.Handler }

// RoundTrip lets the handler answer.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
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
