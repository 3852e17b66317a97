package apiserver

import (
	"bytes"
	"io"
	"net/http"

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
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(answer, req)
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: answer.header, Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()),
		Request: req,
	}, nil
}

// answer is the ResponseWriter of one request.
type answer struct {
	header  http.Header
	status  int
	written bool
	body    bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.written {
		a.status, a.written = status, true
	}
}

func (a *answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// Flush has nothing to do; the server's filters insist on it for HTTP/2.
func (a *answer) Flush() {}

// CloseNotify is required by the server's filters.
func (a *answer) CloseNotify() <-chan bool { return nil }
