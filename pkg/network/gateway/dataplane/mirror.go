package dataplane

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

const (
	// maxMirrored bounds in bytes the body of a request that is mirrored.
	maxMirrored = 64 << 10
	// maxMirrors bounds how many copies are on their way at once. It and maxMirrored bound the memory for them to 8 MiB.
	maxMirrors = 128
	// mirrorTimeout bounds how long a copy is on its way.
	mirrorTimeout = 10 * time.Second
)

// mirrors sends copies of requests. It never keeps the requests themselves waiting: what is too long or too many has no copy.
type mirrors struct {
	underway atomic.Int32
}

// prepare has copies of a request sent, as soon as its body has been read. It returns the request.
func (m *mirrors) prepare(req *http.Request, f *forwarding) *http.Request {
	var to []*gateway.Backend
	for backend := range f.route.Mirrored() {
		if backend.Endpoints != "" && m.take() {
			to = append(to, backend)
		}
	}
	if len(to) == 0 {
		return req
	}
	send := func(body []byte) {
		for _, backend := range to {
			copied := m.copyOf(req, f, backend, body)
			go func() {
				defer m.underway.Add(-1)
				m.send(copied, f, backend)
			}()
		}
	}
	give := func() { m.underway.Add(-int32(len(to))) }
	switch {
	case req.Body == nil || req.Body == http.NoBody || req.ContentLength == 0:
		send(nil)
	case req.ContentLength > maxMirrored:
		give()
	default:
		req = req.WithContext(req.Context())
		kept := &copied{ReadCloser: req.Body, send: send, give: give}
		req.Body = kept
		context.AfterFunc(req.Context(), kept.end) // at the latest when the request has ended
	}
	return req
}

func (m *mirrors) take() bool {
	if m.underway.Add(1) <= maxMirrors {
		return true
	}
	m.underway.Add(-1)
	return false
}

// copyOf returns the request for a mirror.
func (m *mirrors) copyOf(req *http.Request, f *forwarding, to *gateway.Backend, body []byte) *http.Request {
	out := req.Clone(context.Background())
	out.RequestURI = ""
	out.Close = false
	out.Trailer = nil
	out.Body = nil
	out.ContentLength = int64(len(body))
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	for _, value := range out.Header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			out.Header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		delete(out.Header, name)
	}
	f.change(out, to)
	return out
}

func (m *mirrors) send(req *http.Request, f *forwarding, to *gateway.Backend) {
	address := f.state.table.Next(to.Endpoints, nil)
	if address == "" {
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), mirrorTimeout)
	defer cancel()
	way := f.state.transports.of(to)
	req = req.WithContext(ctx)
	u := *req.URL
	u.Scheme, u.Host = way.scheme, address
	req.URL = &u
	res, err := way.RoundTrip(req)
	if err != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxMirrored) // so that the connection can be used again
	res.Body.Close()
}

// copied is a request's body that is kept while it is read.
type copied struct {
	io.ReadCloser
	buffer bytes.Buffer
	done   atomic.Bool
	send   func([]byte)
	give   func()
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.done.Load() {
		return n, err
	}
	if c.buffer.Len()+n > maxMirrored {
		c.end()
		return n, err
	}
	c.buffer.Write(p[:n])
	if err == io.EOF && c.done.CompareAndSwap(false, true) {
		c.send(c.buffer.Bytes())
	}
	return n, err
}

// end says that there is no copy, unless it has been sent.
func (c *copied) end() {
	if c.done.CompareAndSwap(false, true) {
		c.give()
	}
}
