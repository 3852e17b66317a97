package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// Limits for a peer. The multiplexer itself limits only each stream.
const (
	maxPings   = 100 // in pingPeriod; both ends send one every keepAliveInterval, and servers more for a node whose API they miss
	pingPeriod = 30 * time.Second
	maxStreams = 1024 // that a server may have open at a node
)

// What a peer is disconnected for.
var (
	errOpens   = errors.New("the node opened a stream, which only servers do")
	errEarly   = errors.New("the node sent data for a stream that does not exist")
	errPings   = fmt.Errorf("the peer sent more than %d pings in %s", maxPings, pingPeriod)
	errStreams = fmt.Errorf("the server opened more than %d streams", maxStreams)
)

// The multiplexer's frames: a header of 12 bytes, and data if the type is that.
const (
	frameHeader = 12
	frameData   = 0
	frameWindow = 1
	framePing   = 2
	flagSYN     = 1
)

// guard is the connection of a session. It sees the peer's frames before the multiplexer does: it disconnects a peer that sends what no
// honest peer sends, and reads on only while the allowance is not used up.
type guard struct {
	net.Conn
	opens     bool // the peer opens streams; else this end does
	allowance *allowance
	closed    chan struct{}
	once      sync.Once

	// Of the reading goroutine.
	header  [frameHeader]byte
	have    int    // bytes of the header
	data    uint32 // bytes that are left of the frame's data
	to      *stream
	pings   int // since period
	period  time.Time
	mu      sync.Mutex
	streams map[uint32]*stream
	last    uint32 // the highest ID that was added
}

// Read returns the next bytes. Before a frame it waits for room: within one, the multiplexer holds a lock that readers of the stream need.
func (g *guard) Read(p []byte) (int, error) {
	if g.have == 0 && g.data == 0 {
		g.allowance.wait(g.closed)
	}
	n, err := g.Conn.Read(p)
	if wrong := g.inspect(p[:n]); wrong != nil {
		return 0, wrong
	}
	return n, err
}

// Close closes the connection and ends a Read that waits for room.
func (g *guard) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// inspect follows the frames.
func (g *guard) inspect(p []byte) error {
	for len(p) > 0 {
		if g.data > 0 {
			n := min(int(g.data), len(p))
			g.allowance.hold(g.to, n)
			g.data -= uint32(n)
			p = p[n:]
			continue
		}
		n := copy(g.header[g.have:], p)
		g.have += n
		p = p[n:]
		if g.have == frameHeader {
			g.have = 0
			if err := g.frame(); err != nil {
				return err
			}
		}
	}
	return nil
}

// frame handles a complete header. The multiplexer refuses unknown versions and types, and data beyond a stream's window.
func (g *guard) frame() error {
	kind, flags := g.header[1], binary.BigEndian.Uint16(g.header[2:])
	id, length := binary.BigEndian.Uint32(g.header[4:]), binary.BigEndian.Uint32(g.header[8:])
	if kind == framePing && flags&flagSYN != 0 {
		return g.ping()
	}
	if kind != frameData && kind != frameWindow {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if flags&flagSYN != 0 {
		switch {
		case !g.opens:
			return errOpens
		case len(g.streams) >= maxStreams:
			return errStreams
		}
		g.add(id, &stream{guard: g, id: id})
	}
	if kind == frameData {
		g.data, g.to = length, g.streams[id]
		if g.to == nil && id > g.last {
			return errEarly
		}
	}
	return nil
}

// ping limits pings: the multiplexer starts a goroutine for each, which waits while the peer does not read the answers.
func (g *guard) ping() error {
	if now := time.Now(); now.Sub(g.period) > pingPeriod {
		g.period, g.pings = now, 0
	}
	if g.pings++; g.pings > maxPings {
		return errPings
	}
	return nil
}

// add adds a stream. mu is held.
func (g *guard) add(id uint32, s *stream) {
	g.streams[id] = s
	g.last = max(g.last, id)
}

// forget removes a stream that has ended.
func (g *guard) forget(s *stream) {
	g.mu.Lock()
	if g.streams[s.id] == s {
		delete(g.streams, s.id)
	}
	g.mu.Unlock()
	g.allowance.forget(s)
}

// session is a multiplexed connection with a guard.
type session struct {
	*yamux.Session
	guard *guard
}

// newSession begins a session. opens is set at the node, where the peer opens streams.
func newSession(conn net.Conn, opens bool, a *allowance) (*session, error) {
	g := &guard{Conn: conn, opens: opens, allowance: a, closed: make(chan struct{}), streams: map[uint32]*stream{}}
	begin := yamux.Client
	if opens {
		begin = yamux.Server
	}
	s, err := begin(g, yamuxConfig())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &session{s, g}, nil
}

// open opens a stream.
func (s *session) open() (*stream, error) {
	m, err := s.OpenStream()
	if err != nil {
		return nil, err
	}
	stream := &stream{Stream: m, guard: s.guard, id: m.StreamID()}
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	s.guard.add(stream.id, stream)
	return stream, nil
}

// accept returns the next stream that the peer opened.
func (s *session) accept() (*stream, error) {
	m, err := s.AcceptStream()
	if err != nil {
		return nil, err
	}
	s.guard.mu.Lock()
	stream := s.guard.streams[m.StreamID()]
	s.guard.mu.Unlock()
	s.guard.allowance.accept(stream, m)
	return stream, nil
}
