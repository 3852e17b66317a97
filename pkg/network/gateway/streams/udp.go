package streams

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// maxDatagram is the length in bytes that no datagram exceeds.
const maxDatagram = 64 << 10

// packets is a port of UDP, with the sessions of its clients.
type packets struct {
	server *Server
	conn   datagrams
	number uint16

	mu       sync.Mutex
	sessions map[ends]*session
	recent   list.List // of *session, the one that was used last first
	closed   bool
}

// ends are the addresses of a client and, of the gateway's, the one that it uses: answers come from that.
type ends struct{ client, local netip.AddrPort }

// session leads datagrams of a client to an endpoint, and the answers back.
type session struct {
	ends
	listener string
	backend  *net.UDPConn
	endpoint string
	checked  *state // in which the endpoint is the backend's
	place    *list.Element
	used     lastUse
}

// datagrams is a socket, of *net.UDPConn's methods.
type datagrams interface {
	net.PacketConn
	syscall.Conn
	ReadMsgUDPAddrPort(b, control []byte) (n, m, flags int, from netip.AddrPort, err error)
	WriteMsgUDPAddrPort(b, control []byte, to netip.AddrPort) (n, m int, err error)
}

// listenPackets opens a port, for both families of addresses if the host has both.
func (s *Server) listenPackets(number uint16) (*packets, error) {
	opened, err := s.sockets.ListenPacket("udp", fmt.Sprintf(":%d", number))
	if err != nil {
		return nil, err
	}
	conn, ok := opened.(datagrams)
	if !ok {
		opened.Close()
		return nil, errors.ErrUnsupported
	}
	raw, err := conn.SyscallConn()
	if err == nil { // the control messages that say to which address a datagram was sent
		if addressOf(conn.LocalAddr()).Addr().Is4() {
			err = setOption(raw, unix.IPPROTO_IP, unix.IP_PKTINFO)
		} else {
			err = setOption(raw, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO)
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("preparing the socket: %w", err)
	}
	return &packets{server: s, conn: conn, number: number, sessions: map[ends]*session{}}, nil
}

// receive leads datagrams to backends until the port is closed.
func (p *packets) receive() {
	buf, control := make([]byte, maxDatagram), make([]byte, 128)
	for {
		n, m, _, client, err := p.conn.ReadMsgUDPAddrPort(buf, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(acceptPause)
			continue
		}
		local, ok := sentTo(control[:m])
		if !ok || local.IsMulticast() || client.Port() == 0 {
			continue
		}
		s := p.session(ends{client, netip.AddrPortFrom(local, p.number)})
		if s == nil {
			continue
		}
		if _, err := s.backend.Write(buf[:n]); errors.Is(err, syscall.ECONNREFUSED) { // what an earlier datagram has met
			p.end(s)
		}
	}
}

// session returns the session of a client; nil if there is no endpoint.
func (p *packets) session(e ends) *session {
	now := p.server.current.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[e]
	if s != nil && s.checked != now {
		listener, stream := lookup(now, e)
		if stream == nil || listener.Name != s.listener || !stream.Has(now.table, s.endpoint) {
			p.remove(s)
			s = nil
		} else {
			s.checked = now
		}
	}
	if s == nil {
		if s = p.begin(now, e); s == nil {
			return nil
		}
	}
	s.used.note()
	p.recent.MoveToFront(s.place)
	return s
}

// lookup returns what serves datagrams; nil if nothing does, or not this client.
func lookup(now *state, e ends) (*routes.StreamListener, *routes.Stream) {
	site := now.streams.At(e.local, true)
	if site == nil {
		return nil, nil
	}
	listener, stream := site.Find("")
	if stream == nil || !stream.Clients.Admits(gateway.Client(e.client)) {
		return nil, nil
	}
	return listener, stream
}

// begin makes a session. If there are too many, the one that has been unused for longest ends.
func (p *packets) begin(now *state, e ends) *session {
	listener, stream := lookup(now, e)
	if stream == nil || p.closed {
		return nil
	}
	backend := stream.Pick()
	if backend == nil {
		return nil
	}
	endpoint := now.table.Next(backend.Endpoints, nil)
	if endpoint == "" {
		return nil
	}
	if len(p.sessions) >= maxOfListener || p.server.sessions.Load() >= maxSessions {
		oldest := p.recent.Back()
		if oldest == nil {
			return nil
		}
		p.remove(oldest.Value.(*session))
	}
	conn, err := net.Dial("udp", endpoint)
	if err != nil {
		return nil
	}
	if now.isItself(conn, true) {
		conn.Close()
		return nil
	}
	s := &session{ends: e, listener: listener.Name, backend: conn.(*net.UDPConn), endpoint: endpoint, checked: now, used: lastUse{began: time.Now()}}
	s.place = p.recent.PushFront(s)
	p.sessions[e] = s
	p.server.sessions.Add(1)
	go p.answer(s)
	return s
}

// answer leads answers to the client until the session ends.
func (p *packets) answer(s *session) {
	var idle *time.Timer
	s.used.note()
	idle = time.AfterFunc(p.server.idleUDP, func() {
		if left := p.server.idleUDP - s.used.idle(); left > 0 {
			idle.Reset(left)
			return
		}
		p.end(s)
	})
	defer idle.Stop()
	defer p.end(s)
	raw, err := s.backend.SyscallConn()
	from := sentFrom(s.local.Addr())
	for err == nil { // an endpoint that refuses is left, so that the client's next datagram finds another one
		err = readInto(raw, &p.server.datagrams, false, func(b []byte) error {
			s.used.note()
			_, _, _ = p.conn.WriteMsgUDPAddrPort(b, from, s.client) // what cannot be sent is lost, as anywhere else
			return nil
		})
	}
}

// end ends a session.
func (p *packets) end(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(s)
}

func (p *packets) remove(s *session) {
	if p.sessions[s.ends] != s {
		return
	}
	delete(p.sessions, s.ends)
	p.recent.Remove(s.place)
	p.server.sessions.Add(-1)
	s.backend.Close()
}

// closeUnless ends the sessions of listeners that may not stay.
func (p *packets) closeUnless(stays func(listener string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		if !stays(s.listener) {
			p.remove(s)
		}
	}
}

func (p *packets) close() {
	p.conn.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closeUnless(func(string) bool { return false })
}
