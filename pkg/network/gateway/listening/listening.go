// Package listening holds the sockets on which clients of the gateway arrive. Several configurations can use one at once, and a process hands them to
// its successor: a connection that waits in a socket is never refused, neither by a change nor by a restart.
package listening

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Sockets are the sockets of a process. They are made by New, or by Receive.
type Sockets struct {
	mu        sync.Mutex
	streams   map[key]*stream
	packets   map[key]*packets
	inherited bool          // sockets without users stay, as the first configuration is still to come
	settled   chan struct{} // closed when they are no longer inherited: until then the process that sent them accepts, and this one may still fail
	retired   bool          // see Retire
	open      int           // accepted connections
	idle      chan struct{}
	secret    [32]byte
	proxies   atomic.Pointer[[]netip.Prefix] // whose connections name their clients
}

// key is what a socket is bound to.
type key struct {
	Network string `json:"network"` // tcp or udp
	Address string `json:"address"`
}

// New returns no sockets.
func New() *Sockets {
	s := inherit()
	s.settle()
	return s
}

func inherit() *Sockets {
	s := &Sockets{streams: map[key]*stream{}, packets: map[key]*packets{}, idle: make(chan struct{}, 1), inherited: true, settled: make(chan struct{})}
	_, _ = rand.Read(s.secret[:]) // it does not fail
	return s
}

// Secret is random, and the same in the processes that hand the sockets on to each other.
func (s *Sockets) Secret() [32]byte { return s.secret }

// settle begins to accept, under the lock.
func (s *Sockets) settle() {
	if s.inherited {
		s.inherited = false
		close(s.settled)
	}
}

// Settle begins to accept connections, and closes the sockets of an earlier process that nobody uses.
func (s *Sockets) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	for _, one := range s.streams {
		s.closeUnused(one)
	}
	for _, one := range s.packets {
		s.closeUnusedPackets(one)
	}
}

// Retire closes all sockets for good, after another process has got them. Connections that were accepted already reach their users.
func (s *Sockets) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.settle()
	for _, one := range s.streams {
		one.listener.Close()
	}
	for _, one := range s.packets {
		one.conn.Close()
		for user := range one.users {
			user.UDPConn.Close()
		}
	}
	clear(s.packets)
}

// Await returns when no accepted connection is open, or after a time, or when ctx is done.
func (s *Sockets) Await(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s.mu.Lock()
		open := s.open
		s.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-s.idle:
		case <-ctx.Done():
			return
		}
	}
}

// count counts an accepted connection, or one that was closed.
func (s *Sockets) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open += n; s.open > 0 {
		return
	}
	select {
	case s.idle <- struct{}{}:
	default: // it is announced already
	}
}

// stream is a socket that accepts connections, with one goroutine, from when one of its users does and the sockets are settled: until then they wait in
// the socket, for this process or for another one that has the socket too.
type stream struct {
	start    sync.Once
	sockets  *Sockets
	key      key
	listener *net.TCPListener
	users    []*listener   // under the lock, the newest one last
	changed  chan struct{} // closed when the users change
	unused   chan struct{} // closed with the socket after its last user
}

// Listen returns a listener for an address of the network tcp. Others may have one for the same address at the same time: connections reach the newest
// one, so that none is on its way to one that is about to close. The socket is closed with the last one.
func (s *Sockets) Listen(network, address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil, net.ErrClosed
	}
	k := key{network, address}
	one := s.streams[k]
	if one == nil {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			l.Close()
			return nil, net.UnknownNetworkError(network)
		}
		one = s.add(k, tcp)
	}
	l := &listener{stream: one, accepted: make(chan net.Conn), closed: make(chan struct{})}
	one.use(append(one.users, l))
	return l, nil
}

// add takes a socket, under the lock.
func (s *Sockets) add(k key, l *net.TCPListener) *stream {
	one := &stream{sockets: s, key: k, listener: l, changed: make(chan struct{}), unused: make(chan struct{})}
	s.streams[k] = one
	return one
}

// closeUnused closes a socket without users, under the lock.
func (s *Sockets) closeUnused(one *stream) {
	if len(one.users) > 0 || s.inherited || s.streams[one.key] != one {
		return
	}
	delete(s.streams, one.key)
	one.listener.Close()
	close(one.unused)
}

// Pauses after errors such as a lack of file descriptors or memory.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// run accepts connections until the socket is closed.
func (one *stream) run() {
	<-one.sockets.settled
	for pause := firstPause; ; {
		accepted, err := one.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			_ = lifecycle.Sleep(context.Background(), pause)
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		one.sockets.count(1)
		c := &conn{TCPConn: accepted, sockets: one.sockets}
		if !one.sockets.Proxied(c.RemoteAddr()) {
			one.deliver(c)
			continue
		}
		go func() { // others do not wait for its header
			if c.introduce() != nil {
				c.Close()
				return
			}
			one.deliver(c)
		}()
	}
}

// use changes the users, under the lock.
func (one *stream) use(users []*listener) {
	one.users = users
	close(one.changed)
	one.changed = make(chan struct{})
}

// deliver gives a connection to the newest user. It waits while there is none, as after a handover.
func (one *stream) deliver(c net.Conn) {
	for {
		one.sockets.mu.Lock()
		var to chan net.Conn
		if last := len(one.users) - 1; last >= 0 {
			to = one.users[last].accepted
		}
		changed := one.changed
		one.sockets.mu.Unlock()
		select {
		case to <- c:
			return
		case <-changed:
		case <-one.unused:
			c.Close()
			return
		}
	}
}
