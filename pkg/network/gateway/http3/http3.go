// Package http3 serves HTTP/3 (RFC 9114) on ports of UDP, with what a server for HTTPS serves on the same ports of TCP.
//
// It is not Caddy's server for HTTP/3, because nothing bounds the connections and the memory of one client there, and clients may send requests in
// the first packet (0-RTT), which others can send again.
package http3

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// Site is what is served on a port.
type Site struct {
	Port    uint16
	TLS     *tls.Config  // of which the client's first message selects another one
	Handler http.Handler // one that is comparable: while it is the same, nothing changes
}

// Sockets opens sockets.
type Sockets interface {
	ListenPacket(network, address string) (net.PacketConn, error)
	// Proxied reports whether clients at an address are others, which datagrams cannot name.
	Proxied(at net.Addr) bool
	// Secret is the same in the processes that follow each other.
	Secret() [32]byte
}

// Server serves HTTP/3. It is made by New.
type Server struct {
	sockets Sockets
	clients *clients
	grace   time.Duration // for requests when their site changes

	mu     sync.Mutex
	sites  []Site
	ports  map[uint16]*port
	missed map[uint16]bool // that could not be opened, which the log says once
	begun  bool
	served atomic.Pointer[map[uint16]bool]
}

// New returns a server without ports, which opens some after Begin. Requests may go on for the time grace after a change of their site.
func New(sockets Sockets, grace time.Duration) *Server {
	s := &Server{sockets: sockets, clients: newClients(), grace: grace, ports: map[uint16]*port{}, missed: map[uint16]bool{}}
	s.served.Store(&map[uint16]bool{})
	return s
}

// Serves reports whether a port is open.
func (s *Server) Serves(number uint16) bool { return (*s.served.Load())[number] }

// Begin opens the ports, when no other process reads from their sockets.
func (s *Server) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	s.update()
}

// Apply serves these sites only. Ports that another program has are tried again by Retry.
func (s *Server) Apply(sites []Site) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sites = sites
	s.update()
}

// Retry opens the ports that could not be opened.
func (s *Server) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ports) < len(s.sites) {
		s.update()
	}
}

// update makes the ports those of the sites, under the lock.
func (s *Server) update() {
	if !s.begun {
		return
	}
	wanted, served := map[uint16]bool{}, map[uint16]bool{}
	for _, site := range s.sites {
		wanted[site.Port] = true
	}
	for number, p := range s.ports {
		if !wanted[number] {
			p.close(farewell)
			delete(s.ports, number)
		}
	}
	for _, site := range s.sites {
		p := s.ports[site.Port]
		if p == nil {
			var err error
			if p, err = s.open(site); err != nil {
				if !s.missed[site.Port] {
					logrus.WithError(err).Warnf("port %d has no HTTP/3", site.Port)
				}
				s.missed[site.Port] = true
				continue
			}
			delete(s.missed, site.Port)
			s.ports[site.Port] = p
		}
		p.serve(site, s.grace)
		served[site.Port] = true
	}
	s.served.Store(&served)
}

// Close ends all connections, after requests have had a time to end.
func (s *Server) Close(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = false
	s.served.Store(&map[uint16]bool{})
	var all sync.WaitGroup
	for _, p := range s.ports {
		all.Go(func() { p.close(grace) })
	}
	all.Wait()
	clear(s.ports)
}
