package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// maxSessions is how many connections of one node are kept: a node that lost its connection may dial again before the server notices. The
// oldest is closed for another, so that dead connections never keep a node out.
const maxSessions = 2

// Hub is the server's end of tunnels, with the connections of all nodes. The zero value is usable.
type Hub struct {
	mu      sync.Mutex
	nodes   map[string]*peer
	arrival chan struct{} // closed when the next connection comes; nil if no goroutine waits
}

// peer is a node with connections.
type peer struct {
	sessions  []*session // newest last
	allowance *allowance // of all of them
}

// ErrNoTunnel means that a node has no connection to this server.
var ErrNoTunnel = errors.New("it has no tunnel to this server")

// Serve adds a connection of a node, and keeps it until it ends. It does not block.
func (h *Hub) Serve(node string, conn net.Conn) error {
	added, surplus, err := h.add(node, conn)
	if err != nil {
		return err
	}
	if surplus != nil {
		_ = surplus.Close()
	}
	go func() {
		<-added.CloseChan()
		h.remove(node, added)
	}()
	return nil
}

// add adds a connection. It returns the one that is too many, or nil.
func (h *Hub) add(node string, conn net.Conn) (added, surplus *session, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.nodes[node]
	if p == nil {
		p = &peer{allowance: newAllowance()}
	}
	if added, err = newSession(conn, false, p.allowance); err != nil {
		return nil, nil, err
	}
	if h.nodes == nil {
		h.nodes = map[string]*peer{}
	}
	h.nodes[node] = p
	if p.sessions = append(p.sessions, added); len(p.sessions) > maxSessions {
		surplus = p.sessions[0]
		p.sessions = slices.Delete(p.sessions, 0, 1)
	}
	if h.arrival != nil {
		close(h.arrival)
		h.arrival = nil
	}
	return added, surplus, nil
}

func (h *Hub) remove(node string, ended *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.nodes[node]
	if p == nil {
		return
	}
	p.sessions = slices.DeleteFunc(p.sessions, func(s *session) bool { return s == ended })
	if len(p.sessions) == 0 {
		delete(h.nodes, node)
	}
}

// Disconnect ends the connections of a node.
func (h *Hub) Disconnect(node string) {
	h.mu.Lock()
	var all []*session
	if p := h.nodes[node]; p != nil {
		all = slices.Clone(p.sessions)
	}
	h.mu.Unlock()
	for _, s := range all {
		_ = s.Close()
	}
}

// Close ends all connections.
func (h *Hub) Close() {
	h.mu.Lock()
	var all []*session
	for _, p := range h.nodes {
		all = append(all, p.sessions...)
	}
	h.mu.Unlock()
	for _, s := range all {
		_ = s.Close()
	}
}

// session returns a node's newest connection, or nil.
func (h *Hub) session(node string) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.nodes[node]
	if p == nil {
		return nil
	}
	return p.sessions[len(p.sessions)-1]
}

// awaitSession waits until a node has a connection. The error is ErrNoTunnel when enough is closed or ctx is done before.
func (h *Hub) awaitSession(ctx context.Context, node string, enough <-chan struct{}) error {
	for {
		h.mu.Lock()
		there := h.nodes[node] != nil
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
	type result struct {
		conn *stream
		err  error
	}
	done := make(chan result)
	go func() { // a node that does not read makes even the opening of a stream wait
		conn, err := session.dial(ctx, address)
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// dial opens a stream that is connected to an address.
func (s *session) dial(ctx context.Context, address string) (*stream, error) {
	conn, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
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
