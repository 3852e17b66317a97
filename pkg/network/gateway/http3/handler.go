package http3

import (
	"io"
	"net/http"
	"time"
)

// bodyTimeout is how long a request that may have no body may take to say so.
const bodyTimeout = 10 * time.Second

// handler makes requests what they are in HTTP/2, where the end of the header says whether there is a body.
type handler struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.ContentLength < 0 && lacksBody(req.Method) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		first := make([]byte, 1)
		switch n, err := io.ReadFull(req.Body, first); {
		case n > 0:
			req.Body = &begun{first, req.Body}
		case err == io.EOF:
			req.Body, req.ContentLength = http.NoBody, 0
		default:
			panic(http.ErrAbortHandler) // the client has ended the request, or it does not end
		}
		_ = control.SetReadDeadline(time.Time{})
	}
	h.Handler.ServeHTTP(w, req)
}

// lacksBody reports whether requests of a method usually have no body.
func lacksBody(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodDelete:
		return true
	}
	return false
}

// begun is a body of which something was read.
type begun struct {
	first []byte
	io.ReadCloser
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.ReadCloser.Read(p)
}
