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

// maxSessions is how many connections of one node are kept: a node that lost its connection may dial again before the server notices.
const maxSessions = 3

// Hub is the server's end of tunnels, with the connections of all nodes. The zero value is usable.
type Hub struct {
	mu      sync.Mutex
	nodes   map[string][]*yamux.Session // newest last
	arrival chan struct{}               // closed when the next connection comes; nil if no goroutine waits
}

// ErrNoTunnel means that a node has no connection to this server.
var ErrNoTunnel = errors.New("it has no tunnel to this server")

// Serve adds a connection of a node, and keeps it until it ends. It does not block.
func (h *Hub) Serve(node string, conn net.Conn) error {
	session, err := yamux.Client(conn, yamuxConfig())
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

// awaitSession waits until a node has a connection. The error is ErrNoTunnel when enough is closed or ctx is done before.
func (h *Hub) awaitSession(ctx context.Context, node string, enough <-chan struct{}) error {
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

// Nodes counts the nodes that have a connection.
func (h *Hub) Nodes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.nodes)
}

// From returns the remote address of a node's newest connection; ok is false if it has none.
func (h *Hub) From(node string) (from net.Addr, ok bool) {
	s := h.session(node)
	if s == nil {
		return nil, false
	}
	return s.RemoteAddr(), true
}

// Dial connects to an address, HOST:PORT, through the tunnel of a node. The error is ErrNoTunnel without a tunnel, and a RefusedError
// with the node's message if the node refuses.
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
	err = requestAddress(conn, address)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// duplex is a stream whose Close also ends pending reads, as that of a net.Conn does. The multiplexer's Close ends one direction only.
type duplex struct{ *yamux.Stream }

func (s *duplex) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0))
	return s.Stream.Close()
}
