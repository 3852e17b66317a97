package dataplane

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

const (
	// maxRepeated is the length in bytes of the longest body that is kept for another attempt.
	maxRepeated = 64 << 10
	// maxAllRepeated is that of all such bodies together. When they take it, others are sent once.
	maxAllRepeated = 64 << 20
)

// repeated is a body that may be sent more than once.
type repeated struct {
	kept []byte
	once *unread // instead of it, a body that is not kept
}

// keepBody reads a short body if the route wants more than one attempt.
func (f *forwarding) keepBody(req *http.Request) (*repeated, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return &repeated{}, nil
	}
	if f.route.Retry != nil && req.ContentLength > 0 && req.ContentLength <= maxRepeated {
		kept, whole, err := f.memory.keep(req.Body, int(req.ContentLength))
		f.kept += len(kept)
		if err != nil {
			return nil, err
		}
		if whole {
			// Reads the trailers, if there are any.
			_, _ = req.Body.Read(make([]byte, 1))
			req.Body = io.NopCloser(bytes.NewReader(kept))
			return &repeated{kept: kept}, nil
		}
		req.Body = &begun{io.MultiReader(bytes.NewReader(kept), req.Body), req.Body}
	}
	once := &unread{ReadCloser: req.Body}
	req.Body = once
	return &repeated{once: once}, nil
}

// begun is a body of which something was read.
type begun struct {
	io.Reader
	io.Closer
}

// rewind makes a request ready for another attempt after one with an error, and reports whether it can.
func (r *repeated) rewind(req *http.Request, err error) bool {
	switch {
	case r.once != nil:
		_, dialing := errors.AsType[dialError](err)
		return dialing && !r.once.begun.Load()
	case r.kept != nil:
		req.Body = io.NopCloser(bytes.NewReader(r.kept))
	}
	return true
}

// unread is a body that knows whether somebody has begun to read it. It is not closed before, because it may be sent elsewhere.
type unread struct {
	io.ReadCloser
	begun atomic.Bool
}

func (u *unread) Read(p []byte) (int, error) {
	u.begun.Store(true)
	return u.ReadCloser.Read(p)
}

func (u *unread) Close() error {
	if !u.begun.Load() {
		return nil
	}
	return u.ReadCloser.Close()
}
