package front

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// TestAwaitMove: an address counts when it is the same twice, so that one that comes and goes restarts nothing.
func TestAwaitMove(t *testing.T) {
	one, two, three := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	seen := []netip.Addr{one, two, one, two, three, three} // nothing; a flap; a change that goes on
	changed := make(chan struct{}, 2)
	changed <- struct{}{}
	changed <- struct{}{}
	looks := 0
	got, moved := awaitMove(t.Context(), config.Config{Node: config.Node{IPs: []netip.Addr{one}}}, changed,
		func(c config.Config) (config.Config, bool, []netip.Addr) {
			now := c
			now.Node.IPs = []netip.Addr{seen[looks]}
			looks++
			return now, now.Node.IPs[0] != one, nil
		})
	if !moved || got.Node.IPs[0] != three || looks != len(seen) {
		t.Errorf("moved %t to %s after %d looks", moved, got.Node.IPs, looks)
	}
}

func TestAwaitMoveEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	looks := 0
	_, moved := awaitMove(ctx, config.Config{}, nil, func(c config.Config) (config.Config, bool, []netip.Addr) {
		looks++
		return c, false, []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	})
	if moved || looks != 1 {
		t.Errorf("moved %t after %d looks", moved, looks)
	}
}
