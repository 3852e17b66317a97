package member

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}
func (c *fakeConn) Close() error { c.closed = true; return nil }

// fakeListener returns what it has, in order, and then that it is closed.
type fakeListener struct{ results []any }

func (l *fakeListener) Accept() (net.Conn, error) {
	if len(l.results) == 0 {
		return nil, net.ErrClosed
	}
	next := l.results[0]
	l.results = l.results[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(*fakeConn), nil
}
func (l *fakeListener) Close() error   { return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestDoor: a source has few connections on which nobody is known, others and known ones are not affected, and an error does not end the listener.
func TestDoor(t *testing.T) {
	listener := &fakeListener{}
	d := newDoor(listener)
	accept := func(results ...any) *stranger {
		t.Helper()
		listener.results = results
		conn, err := d.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn.(*stranger)
	}
	open := func(all []*stranger) (n int) {
		for _, s := range all {
			if !s.Conn.(*fakeConn).closed {
				n++
			}
		}
		return n
	}
	other := accept(&fakeConn{from: "192.0.2.2:1"})
	var peers, strangers []*stranger
	for range 2 * maxStrangers {
		s := accept(&fakeConn{from: "192.0.2.1:1"})
		s.known()
		peers = append(peers, s)
	}
	for range 3 * maxStrangers {
		strangers = append(strangers, accept(&fakeConn{from: "192.0.2.1:1"}))
	}
	if got := open(strangers); got != maxStrangers {
		t.Errorf("%d connections of strangers are open", got)
	}
	if open(peers) != len(peers) || open([]*stranger{other}) != 1 {
		t.Error("a peer's connection, or that of another source, was closed")
	}
	for _, s := range append(strangers, other) {
		s.Close()
	}
	if len(d.strangers) > 0 {
		t.Errorf("%d sources are left", len(d.strangers))
	}
	began := time.Now()
	accept(&net.OpError{Op: "accept", Err: syscall.EMFILE}, &fakeConn{from: "192.0.2.1:1"})
	if time.Since(began) < acceptPause {
		t.Error("it does not pause without descriptors")
	}
	if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener says %v", err)
	}
}
