package http3

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Bounds of what clients can take. One that has no more connections of HTTP/3 is refused at once, and comes with TCP.
const (
	maxConnections = 1024
	maxOfClient    = 16 // connections of an IPv4 address or an IPv6 network of 64 bits
	// maxHandshakes is from how many handshakes on a client has to show first that it gets what is sent to its address, with a packet more (Retry).
	maxHandshakes = 64
)

// clients counts connections.
type clients struct {
	mu         sync.Mutex
	open       int
	handshakes int // that are not done
	of         map[netip.Prefix]int
}

func newClients() *clients { return &clients{of: map[netip.Prefix]int{}} }

// visit is a connection.
type visit struct {
	greeted bool
	of      atomic.Pointer[generation] // by which the client has shown who it is
}

// visitKey is a context's key for it.
type visitKey struct{}

var errFull = errors.New("too many connections")

// begin counts a connection until its context ends.
func (c *clients) begin(ctx context.Context, from net.Addr) (context.Context, error) {
	udp, ok := from.(*net.UDPAddr)
	if !ok {
		return nil, errFull
	}
	network := gateway.Network(gateway.Client(udp.AddrPort()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= maxConnections || c.of[network] >= maxOfClient {
		return nil, errFull
	}
	c.open++
	c.handshakes++
	c.of[network]++
	v := &visit{}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open--
		if c.of[network]--; c.of[network] == 0 {
			delete(c.of, network)
		}
		c.greet(v)
	})
	return context.WithValue(ctx, visitKey{}, v), nil
}

// greeted says that a connection's handshake is done.
func (c *clients) greeted(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		c.greet(v)
	}
}

func (c *clients) greet(v *visit) {
	if !v.greeted {
		v.greeted = true
		c.handshakes--
	}
}

// busy reports whether there are so many handshakes that their senders may not be who they seem to be.
func (c *clients) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handshakes >= maxHandshakes
}
