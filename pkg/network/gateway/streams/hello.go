package streams

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// maxHello is the number of bytes up to which a ClientHello is read: what crypto/tls accepts, and what it reads ahead.
const maxHello = 72 << 10

// handshakes counts the connections of which the name is not known yet.
type handshakes struct {
	mu    sync.Mutex
	of    map[netip.Prefix]int // by client
	total int
}

// begin reports whether there is room for one more of a client, after which end must be called.
func (h *handshakes) begin(client netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := gateway.Network(client)
	if h.total >= maxHandshakes || h.of[of] >= maxOfClient {
		return false
	}
	h.of[of]++
	h.total++
	return true
}

func (h *handshakes) end(client netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := gateway.Network(client)
	h.total--
	if h.of[of]--; h.of[of] == 0 {
		delete(h.of, of)
	}
}

// peek returns the name in a TLS client's first message, which may be empty, and all that was read. Nothing is sent.
func peek(conn net.Conn) (name string, read []byte, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	r := &recorder{Conn: conn}
	found := errors.New("the name is found")
	err = tls.Server(r, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name = hello.ServerName
		return nil, found
	}}).Handshake()
	if errors.Is(err, found) {
		err = conn.SetReadDeadline(time.Time{})
	} else if r.err != nil {
		err = r.err
	}
	return name, r.read, err
}

// recorder records what is read, and sends nothing.
type recorder struct {
	net.Conn
	read []byte
	err  error
}

func (r *recorder) Read(b []byte) (int, error) {
	if len(r.read) >= maxHello {
		return 0, errors.New("the ClientHello is too long")
	}
	n, err := r.Conn.Read(b[:min(len(b), maxHello-len(r.read))])
	r.read = append(r.read, b[:n]...)
	r.err = err
	return n, err
}

func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// prefixed is a connection of which something was read.
type prefixed struct {
	net.Conn
	prefix []byte
}

// NetConn returns the connection itself.
func (p *prefixed) NetConn() net.Conn { return p.Conn }

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		if p.prefix = p.prefix[n:]; len(p.prefix) == 0 {
			p.prefix = nil
		}
		return n, nil
	}
	return p.Conn.Read(b)
}
