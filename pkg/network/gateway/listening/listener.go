package listening

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// conn is an accepted connection, which is counted.
type conn struct {
	*net.TCPConn
	sockets *Sockets
	once    sync.Once
	client  net.Addr     // that a proxy has named, or nil
	rest    atomic.Int64 // until when nothing is read, in nanoseconds since 1970; 0 if something is
}

// Rest has nothing more be read until a time, so that the kernel makes the client wait.
func (c *conn) Rest(until time.Time) { c.rest.Store(until.UnixNano()) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for rest := c.rest.Load(); rest != 0; rest = c.rest.Load() {
		_ = lifecycle.Sleep(context.Background(), time.Until(time.Unix(0, rest)))
		c.rest.CompareAndSwap(rest, 0)
	}
	return c.TCPConn.Read(p)
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr {
	if c.client != nil {
		return c.client
	}
	return c.TCPConn.RemoteAddr()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { c.sockets.count(-1) })
	return c.TCPConn.Close()
}

// listener is one user of a stream.
type listener struct {
	*stream
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	l.start.Do(func() { go l.run() })
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. A second call does nothing.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.sockets.mu.Lock()
		defer l.sockets.mu.Unlock()
		l.use(slices.DeleteFunc(slices.Clone(l.users), func(other *listener) bool { return other == l }))
		l.sockets.closeUnused(l.stream)
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.listener.Addr() }
