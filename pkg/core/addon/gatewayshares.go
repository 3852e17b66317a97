package addon

import (
	"maps"
	"sync"
)

// GatewayShares are what this server's gateway add-on has for the gateways of agents, by node.
type GatewayShares struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next change
	of   map[string][]byte
	rest []byte
}

// NewGatewayShares returns one without shares.
func NewGatewayShares() *GatewayShares { return &GatewayShares{next: make(chan struct{})} }

// Set replaces the shares. rest is that of all other nodes, nil if it is not known what they serve.
func (g *GatewayShares) Set(of map[string][]byte, rest []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if string(g.rest) == string(rest) && (g.rest == nil) == (rest == nil) && maps.EqualFunc(g.of, of, func(a, b []byte) bool { return string(a) == string(b) }) {
		return
	}
	g.of, g.rest = of, rest
	close(g.next)
	g.next = make(chan struct{})
}

// Of returns the share of a node, nil if it is not known, and a channel that is closed at the next change.
func (g *GatewayShares) Of(node string) (share []byte, next <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if share, ok := g.of[node]; ok {
		return share, g.next
	}
	return g.rest, g.next
}
