package dataplane

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

const (
	// maxMirrored bounds in bytes the body of a request that is mirrored.
	maxMirrored = 64 << 10
	// maxMirrors bounds how many copies are on their way at once. It and maxMirrored bound the memory for them, and for bodies that come, to 8 MiB.
	maxMirrors = 128
	// mirrorTimeout bounds how long a body may take to come, and how long a copy is on its way.
	mirrorTimeout = 10 * time.Second
)

// mirrors sends copies of requests. It never keeps the requests themselves waiting: what is too long, too slow or too many has no copy.
type mirrors struct {
	underway atomic.Int32
	memory   memory // for bodies that come, and those of copies
}

// prepare has copies of a request sent, as soon as its body has been read. It returns the request.
func (m *mirrors) prepare(req *http.Request, f *forwarding) *http.Request {
	var to []*gateway.Backend
	for backend := range f.route.Mirrored() {
		if backend.Endpoints != "" {
			to = append(to, backend)
		}
	}
	if len(to) == 0 || req.ContentLength > maxMirrored {
		return req
	}
	// Sends copies, and calls after when all are done.
	send := func(body []byte, after func()) {
		var left atomic.Int32
		left.Store(int32(len(to)))
		for _, backend := range to {
			done := func() {
				if left.Add(-1) == 0 {
					after()
				}
			}
			if !m.take() {
				done()
				continue
			}
			copied := m.copyOf(req, f, backend, body)
			go func() {
				defer done()
				defer m.underway.Add(-1)
				m.send(copied, f, backend)
			}()
		}
	}
	if req.Body == nil || req.Body == http.NoBody || req.ContentLength == 0 {
		send(nil, func() {})
		return req
	}
	req = req.WithContext(req.Context())
	kept := &copied{ReadCloser: req.Body, memory: &m.memory, send: send}
	req.Body = kept
	late := time.AfterFunc(mirrorTimeout, kept.end)
	context.AfterFunc(req.Context(), func() { // at the latest when the request has ended
		late.Stop()
		kept.end()
	})
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
	memory *memory
	send   func(body []byte, after func())

	mu     sync.Mutex
	buffer []byte
	done   bool
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if body, whole := c.keep(p[:n], err == io.EOF); whole {
		c.send(body, func() { c.memory.give(len(body)) })
	}
	return n, err
}

// keep keeps a part of the body, and returns all of it after the last one.
func (c *copied) keep(part []byte, last bool) (body []byte, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil, false
	}
	if len(c.buffer)+len(part) > maxMirrored || !c.memory.take(len(part)) {
		c.drop()
		return nil, false
	}
	c.buffer = append(c.buffer, part...)
	if last {
		body, c.buffer, c.done = c.buffer, nil, true
	}
	return body, last
}

// end says that there is no copy, unless it has been sent.
func (c *copied) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.drop()
	}
}

func (c *copied) drop() {
	c.memory.give(len(c.buffer))
	c.buffer, c.done = nil, true
}
