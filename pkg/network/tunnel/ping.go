package tunnel

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/yamux"
)

// Ping asks a node for a sign of life through its newest connection. It fails with ErrNoTunnel if there is none or it
// has just ended, and when ctx is done.
func (h *Hub) Ping(ctx context.Context, node string) error {
	session := h.session(node)
	if session == nil {
		return ErrNoTunnel
	}
	answer := make(chan error, 1)
	go func() { // the multiplexer knows no ctx; it gives up after its own limit
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
