package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// maxSessions is how many connections of one node are kept. A node that has lost one dials again before the server
// notices; it needs no more than that.
const maxSessions = 3

// Hub is the server's end: it keeps the connections of all nodes. The zero value is usable.
type Hub struct {
	mu      sync.Mutex
	nodes   map[string][]*yamux.Session // the newest last
	arrival chan struct{}               // closed when the next connection is there; nil if nobody waits
}

// ErrNoTunnel says that a node has no connection to this server.
var ErrNoTunnel = errors.New("it has no tunnel to this server")

// Serve takes a connection that a node has made, and serves it in the background until it ends.
func (h *Hub) Serve(node string, conn net.Conn) error {
	session, err := yamux.Client(conn, settings())
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	h.mu.Lock()
	if h.nodes == nil {
		h.nodes = map[string][]*yamux.Session{}
	}
	all := append(h.nodes[node], session)
	var surplus *yamux.Session
	if len(all) > maxSessions {
		surplus, all = all[0], all[1:]
	}
	h.nodes[node] = all
	if h.arrival != nil {
		close(h.arrival)
		h.arrival = nil
	}
	h.mu.Unlock()
	if surplus != nil {
		_ = surplus.Close()
	}
	go func() {
		<-session.CloseChan()
		h.remove(node, session)
	}()
	return nil
}

func (h *Hub) remove(node string, session *yamux.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(h.nodes[node]), func(s *yamux.Session) bool { return s == session })
	if len(rest) == 0 {
		delete(h.nodes, node)
	} else {
		h.nodes[node] = rest
	}
}

// Close ends all connections.
func (h *Hub) Close() {
	h.mu.Lock()
	var all []*yamux.Session
	for _, sessions := range h.nodes {
		all = append(all, sessions...)
	}
	h.mu.Unlock()
	for _, s := range all {
		_ = s.Close()
	}
}

// session returns a node's newest connection, or nil.
func (h *Hub) session(node string) *yamux.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.nodes[node]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// await waits until a node has a connection. It fails with ErrNoTunnel when enough is closed or ctx is done before.
func (h *Hub) await(ctx context.Context, node string, enough <-chan struct{}) error {
	for {
		h.mu.Lock()
		there := len(h.nodes[node]) > 0
		if h.arrival == nil {
			h.arrival = make(chan struct{})
		}
		arrival := h.arrival
		h.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-arrival:
		case <-enough:
			return ErrNoTunnel
		case <-ctx.Done():
			return ErrNoTunnel
		}
	}
}

// Nodes is how many nodes have a connection.
func (h *Hub) Nodes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.nodes)
}

// From returns the address that a node's connection comes from; ok is false if it has none.
func (h *Hub) From(node string) (from net.Addr, ok bool) {
	s := h.session(node)
	if s == nil {
		return nil, false
	}
	return s.RemoteAddr(), true
}

// Dial has a node connect to an address, HOST:PORT. It fails with ErrNoTunnel, or with a RefusedError that holds the
// node's own words.
func (h *Hub) Dial(ctx context.Context, node, address string) (net.Conn, error) {
	session := h.session(node)
	if session == nil {
		return nil, ErrNoTunnel
	}
	stream, err := session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	conn := &duplex{Stream: stream}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = ask(conn, address)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// duplex is a stream that is closed as a connection is: who reads from it notices. The multiplexer's own Close ends
// one direction only.
type duplex struct{ *yamux.Stream }

func (s *duplex) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0))
	return s.Stream.Close()
}
