package tunnel

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/yamux"
)

// Ping pings a node through its newest connection. The error is ErrNoTunnel if there is none or it has just ended.
func (h *Hub) Ping(ctx context.Context, node string) error {
	session := h.session(node)
	if session == nil {
		return ErrNoTunnel
	}
	answer := make(chan error, 1)
	go func() { // Ping of the multiplexer takes no ctx; it has its own timeout
		_, err := session.Ping()
		answer <- err
	}()
	select {
	case err := <-answer:
		if errors.Is(err, yamux.ErrSessionShutdown) {
			return ErrNoTunnel
		}
		if err != nil {
			return fmt.Errorf("pinging node %s: %w", node, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pinging node %s: %w", node, context.Cause(ctx))
	}
}
