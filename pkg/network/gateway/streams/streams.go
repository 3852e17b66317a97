// Package streams leads connections of TLS and TCP, and datagrams of UDP, to backends. It opens the ports that have no listener for HTTP; on the
// others it takes its connections from those that the server for HTTP accepts.
//
// It is not Caddy's layer4 app (github.com/mholt/caddy-l4), because that has names and the backends' addresses in Caddy's configuration: each
// change of an endpoint would load it again, which closes the sockets of UDP with all sessions, and expands placeholders in users' text.
package streams

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// Bounds of what clients can take. They are below the limit of the process's descriptors, so that HTTP goes on.
const (
	maxHandshakes  = 8192  // connections of which the name is not known yet
	maxOfClient    = 256   // of them, of an IPv4 address or an IPv6 network of 64 bits
	maxConnections = 10000 // to backends, of which each has two descriptors
	maxSessions    = 16384 // of UDP, of which each has one
	maxOfListener  = 4096  // connections or sessions, so that one is not in the others' way
)

// Times after which connections are closed.
const (
	helloTimeout = 10 * time.Second // for the client to name a host, and for the TLS handshake
	dialTimeout  = 3 * time.Second  // for an endpoint to accept
	idleTimeout  = time.Hour        // without data in either direction
	idleSession  = time.Minute      // of UDP without a datagram in either direction
)

// Server serves streams. The zero value cannot be used.
type Server struct {
	sockets    Sockets
	current    atomic.Pointer[state]
	handshakes handshakes
	links      links
	sessions   atomic.Int64  // of UDP
	idle       time.Duration // idleTimeout
	idleUDP    time.Duration // idleSession
	buffers    sync.Pool     // of *[]byte for connections
	datagrams  sync.Pool     // of *[]byte for the longest datagrams

	mu      sync.Mutex
	ports   map[uint16]net.Listener
	packets map[uint16]*packets
	web     map[webKey]*webPort // the ports of the server for HTTP
}

// state is what connections are served with. It does not change.
type state struct {
	streams   *routes.Streams
	table     *routes.Table // for the backends' addresses
	tls       map[string]*tls.Config
	own       map[port]bool               // that this process serves
	protocols map[string]gateway.Protocol // of the listeners
}

type port struct {
	number uint16
	udp    bool
}

// Sockets opens sockets. Others may have a socket for the same address, in which case a connection reaches one of them.
type Sockets interface {
	Listen(network, address string) (net.Listener, error)
	ListenPacket(network, address string) (net.PacketConn, error)
}

// New returns a server without listeners.
func New(sockets Sockets) *Server {
	s := &Server{
		sockets: sockets,
		ports:   map[uint16]net.Listener{}, packets: map[uint16]*packets{}, web: map[webKey]*webPort{}, idle: idleTimeout, idleUDP: idleSession,
		handshakes: handshakes{of: map[netip.Prefix]int{}},
		links:      links{of: map[string]map[*link]struct{}{}},
		buffers:    sync.Pool{New: func() any { return new(make([]byte, 16<<10)) }},
		datagrams:  sync.Pool{New: func() any { return new(make([]byte, maxDatagram)) }},
	}
	empty, _ := routes.NewStreams(gateway.Config{})
	s.current.Store(&state{streams: empty, table: routes.New(gateway.Config{}, nil, nil)})
	return s
}

// Apply serves what a configuration says, and returns why listeners cannot be served, by port. The ports of web are open already. Connections
// stay open as long as their listener exists.
func (s *Server) Apply(config gateway.Config, table *routes.Table, web map[uint16]bool) (refused map[uint16]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &state{table: table, tls: terminations(config), own: map[port]bool{}, protocols: map[string]gateway.Protocol{}}
	next.streams, refused = routes.NewStreams(config)
	for _, l := range config.Listeners {
		next.protocols[l.Name] = l.Protocol
		next.own[port{l.Port, l.Protocol == gateway.UDP}] = true
	}
	for number, l := range s.ports { // before the state, in which connections of web are not served here
		if web[number] || !next.own[port{number: number}] {
			l.Close()
			delete(s.ports, number)
		}
	}
	s.current.Store(next)
	for number, p := range s.packets {
		if !next.own[port{number, true}] {
			p.close()
			delete(s.packets, number)
		}
	}
	s.links.closeUnless(func(l *link) bool { return next.protocols[l.listener] == l.protocol })
	for _, p := range s.packets {
		p.closeUnless(func(name string) bool { return next.protocols[name] == gateway.UDP })
	}
	for _, l := range config.Listeners {
		if err := s.open(l, web); err != nil {
			refused[l.Port] = err.Error()
		}
	}
	return refused
}

// open opens a listener's port unless it is open.
func (s *Server) open(l gateway.Listener, web map[uint16]bool) error {
	switch l.Protocol {
	case gateway.UDP:
		if s.packets[l.Port] != nil {
			return nil
		}
		p, err := s.listenPackets(l.Port)
		if err != nil {
			return err
		}
		s.packets[l.Port] = p
		go p.receive()
	case gateway.TCP, gateway.TLS, gateway.Passthrough:
		if web[l.Port] || s.ports[l.Port] != nil {
			return nil
		}
		opened, err := s.sockets.Listen("tcp", fmt.Sprintf(":%d", l.Port))
		if err != nil {
			return err
		}
		s.ports[l.Port] = opened
		go s.accept(opened)
	}
	return nil
}

// Use serves with other addresses of backends. Open connections stay.
func (s *Server) Use(table *routes.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.current.Load()
	next.table = table
	s.current.Store(&next)
}

// Close closes everything.
func (s *Server) Close() error {
	s.Apply(gateway.Config{}, routes.New(gateway.Config{}, nil, nil), nil)
	return nil
}

// accept serves the connections to a port of its own.
func (s *Server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many descriptors
			<-time.After(acceptPause)
			continue
		}
		if !s.take(conn, nil) {
			conn.Close()
		}
	}
}

// acceptPause is the time until connections are accepted again after one could not be.
const acceptPause = 50 * time.Millisecond
