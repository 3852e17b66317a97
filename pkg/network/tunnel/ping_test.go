package tunnel

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

func TestPing(t *testing.T) {
	p := connect(t, allowAll)
	if err := p.hub.Ping(t.Context(), "n"); err != nil {
		t.Errorf("the node is there: %v", err)
	}
	if err := p.hub.Ping(t.Context(), "other"); !errors.Is(err, ErrNoTunnel) {
		t.Errorf("a node without a tunnel: %v", err)
	}
	p.end()
	await(t, "the end of the session", func() bool { return p.hub.Nodes() == 0 })
	if err := p.hub.Ping(t.Context(), "n"); !errors.Is(err, ErrNoTunnel) {
		t.Errorf("a node that has gone: %v", err)
	}
}

// TestPingSilence pings a node whose machine has vanished: nobody reads, and nobody says that nobody does.
func TestPingSilence(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	var hub Hub
	defer hub.Close()
	if err := hub.Serve("n", here); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := hub.Ping(ctx, "n")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
