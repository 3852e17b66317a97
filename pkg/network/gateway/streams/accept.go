package streams

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// shared is a listener of the server for HTTP, without the connections of streams.
type shared struct {
	net.Listener
	server *Server
	*webPort
	start  sync.Once
	failed chan error
	closed chan struct{}
	end    sync.Once
}

// Share returns a listener of the server for HTTP, or HTTPS, without the connections that belong to streams or to the other of the two.
func (s *Server) Share(l net.Listener, secure bool) net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := webKey{addressOf(l.Addr()).Port(), secure}
	if s.web[key] == nil {
		s.web[key] = &webPort{key: key, web: make(chan net.Conn), changed: make(chan struct{})}
	}
	out := &shared{Listener: l, server: s, webPort: s.web[key], failed: make(chan error), closed: make(chan struct{})}
	out.use(append(out.users, out))
	return out
}

// webKey is a port for HTTP or HTTPS. It can be for both, at different addresses.
type webKey struct {
	number uint16
	secure bool
}

// webOf returns where a connection is for the server for HTTP, which a listener for HTTP or HTTPS has accepted.
func (s *Server) webOf(conn net.Conn, by *webPort) chan net.Conn {
	local := addressOf(conn.LocalAddr())
	secure, known := s.current.Load().table.Secure(local)
	if !known || secure == by.key.secure {
		return by.web
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.web[webKey{by.key.number, secure}]; other != nil && len(other.users) > 0 {
		return other.web
	}
	return by.web
}

// webPort is where connections are for the server for HTTP: its newest listener gets them, so that none is on its way to one that is about to close.
type webPort struct {
	key     webKey
	web     chan net.Conn
	users   []*shared     // under the server's lock, the newest one last
	changed chan struct{} // closed when the users change
}

// use changes the listeners, under the server's lock.
func (w *webPort) use(users []*shared) {
	w.users = users
	close(w.changed)
	w.changed = make(chan struct{})
}

// Accept implements net.Listener.
func (l *shared) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.run() })
	for {
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		default:
		}
		l.server.mu.Lock()
		var web chan net.Conn
		if last := len(l.users) - 1; last >= 0 && l.users[last] == l {
			web = l.web
		}
		changed := l.changed
		l.server.mu.Unlock()
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case err := <-l.failed:
			return nil, err
		case conn := <-web:
			return conn, nil
		case <-changed:
		}
	}
}

// Close implements net.Listener.
func (l *shared) Close() error {
	err := l.Listener.Close()
	l.end.Do(func() {
		close(l.closed)
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		l.use(slices.DeleteFunc(slices.Clone(l.users), func(other *shared) bool { return other == l }))
	})
	return err
}

func (l *shared) run() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			select {
			case <-l.closed:
				return
			case l.failed <- err: // whoever accepts waits before it does so again
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		web := l.server.webOf(conn, l.webPort)
		if l.server.take(conn, web) {
			continue
		}
		select {
		case web <- conn:
		case <-l.closed:
			conn.Close()
		}
	}
}

// Takes reports whether connections to an address that name a host in a TLS handshake are for streams.
func (s *Server) Takes(local netip.AddrPort, name string) bool {
	site := s.current.Load().streams.At(local, false)
	if site == nil || !site.Streams {
		return false
	}
	listener, _ := site.Find(name)
	return listener != nil && !listener.IsWeb()
}

// take serves a connection if streams may have it, and reports whether it does. If it is found to be for HTTPS it goes to web.
func (s *Server) take(conn net.Conn, web chan net.Conn) bool {
	now := s.current.Load()
	site := now.streams.At(addressOf(conn.LocalAddr()), false)
	if site == nil || !site.Streams {
		return false
	}
	if !site.Named {
		listener, stream := site.Find("")
		go s.forward(now, conn, nil, listener, stream)
		return true
	}
	client := clientOf(conn)
	if !s.handshakes.begin(client) {
		conn.Close()
		return true
	}
	go func() {
		name, read, err := peek(conn)
		s.handshakes.end(client)
		if err != nil && (!site.Web || errors.Is(err, os.ErrDeadlineExceeded)) {
			conn.Close()
			return
		}
		listener, stream := site.Find(name)
		if err == nil && (listener == nil || !listener.IsWeb()) {
			s.forward(now, conn, read, listener, stream)
			return
		}
		s.handOver(&prefixed{Conn: conn, prefix: read}, web)
	}()
	return true
}

// handOver gives a connection to the server for HTTP.
func (s *Server) handOver(conn net.Conn, web chan net.Conn) {
	if web == nil {
		conn.Close()
		return
	}
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	select {
	case web <- conn:
	case <-timer.C: // the port is closed
		conn.Close()
	}
}

// forward leads a connection to a backend. What was read of it goes first.
func (s *Server) forward(now *state, conn net.Conn, read []byte, listener *routes.StreamListener, stream *routes.Stream) {
	defer conn.Close()
	if listener == nil || stream == nil || !stream.Clients.Admits(clientOf(conn)) {
		return
	}
	backend := stream.Pick()
	if backend == nil || !now.table.Serves(backend.Endpoints) {
		return
	}
	l := &link{listener: listener.Name, protocol: listener.Protocol, client: conn}
	if !s.links.add(l) {
		return
	}
	defer s.links.remove(l)
	if s.current.Load().protocols[l.listener] != l.protocol { // it is gone since the connection has been accepted
		return
	}
	if listener.Protocol == gateway.TLS {
		config := now.tls[listener.Name]
		if config == nil {
			return
		}
		secure := tls.Server(&prefixed{Conn: conn, prefix: read}, config)
		_ = conn.SetDeadline(time.Now().Add(helloTimeout))
		if err := secure.Handshake(); err != nil {
			return
		}
		_ = conn.SetDeadline(time.Time{})
		l.secure(secure)
		read = nil
	}
	to, err := s.dial(s.current.Load(), backend.Endpoints)
	if err != nil || !l.join(to) {
		return
	}
	if _, err := to.Write(read); err == nil {
		s.copyBoth(l)
	}
}

// clientOf returns the address of a connection's client.
func clientOf(conn net.Conn) netip.Addr {
	return gateway.Client(addressOf(conn.RemoteAddr()))
}

// addressOf returns the address of a connection or listener, which is none of a connection that is not of TCP.
func addressOf(a net.Addr) netip.AddrPort {
	if of, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return of.AddrPort()
	}
	return netip.AddrPort{}
}
