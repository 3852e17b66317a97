package streams

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// link is a client's connection with that to a backend.
type link struct {
	listener string
	protocol gateway.Protocol
	client   net.Conn
	used     lastUse

	mu      sync.Mutex
	backend net.Conn
	closed  bool
}

// secure sets the client's connection with TLS around it.
func (l *link) secure(client net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = client
}

// join sets the connection to the backend. If the link is closed it is closed too.
func (l *link) join(backend net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backend = backend
	if l.closed {
		backend.Close()
	}
	return !l.closed
}

// close closes both connections. After an error both ends get a reset, since an orderly end would say that they have everything.
func (l *link) close(orderly bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, conn := range []net.Conn{l.client, l.backend} {
		if conn == nil {
			continue
		}
		if to, ok := conn.(interface{ SetLinger(sec int) error }); ok && !orderly {
			_ = to.SetLinger(0)
		}
		if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = secure.NetConn() // without a message, for which it would wait
		}
		conn.Close()
	}
}

// links are the open connections by listener.
type links struct {
	mu    sync.Mutex
	of    map[string]map[*link]struct{}
	total int
}

// add reports whether there is room for one more.
func (l *links) add(one *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || len(l.of[one.listener]) >= maxOfListener {
		return false
	}
	if l.of[one.listener] == nil {
		l.of[one.listener] = map[*link]struct{}{}
	}
	l.of[one.listener][one] = struct{}{}
	l.total++
	return true
}

func (l *links) remove(one *link) {
	one.close(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of[one.listener], one)
	if len(l.of[one.listener]) == 0 {
		delete(l.of, one.listener)
	}
	l.total--
}

// closeUnless closes those that may not stay.
func (l *links) closeUnless(stays func(*link) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.of {
		for one := range all {
			if !stays(one) {
				one.close(true)
			}
		}
	}
}

// lastUse is when data came last. A step of the machine's clock does not change that.
type lastUse struct {
	began time.Time
	after atomic.Int64 // nanoseconds
}

// note says that data has come.
func (l *lastUse) note() { l.after.Store(int64(time.Since(l.began))) }

// idle is for how long none has come.
func (l *lastUse) idle() time.Duration { return time.Since(l.began) - time.Duration(l.after.Load()) }
