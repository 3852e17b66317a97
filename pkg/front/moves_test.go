package front

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
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

// TestOutage: a node takes the address of another interface, with which it stays, only if the network with the default route does not come back.
func TestOutage(t *testing.T) {
	lan, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.168.7.1")
	for name, c := range map[string]struct {
		away time.Duration
		back netip.Addr
		want time.Duration
	}{
		"the router starts again":         {40 * time.Second, lan, 0},
		"and gives another address":       {40 * time.Second, netip.MustParseAddr("10.0.0.2"), 41 * time.Second},
		"the network is gone for good":    {time.Hour, lan, time.Minute},
		"another address, and no outage":  {0, netip.MustParseAddr("10.0.0.2"), time.Second},
		"the same address, and no outage": {0, lan, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			began := time.Now()
			at := config.Config{Node: config.Node{IPs: []netip.Addr{lan}, Sources: []config.AddressSource{config.RouteAddress}}}
			_, moved := awaitMove(ctx, at, nil, func(now config.Config) (config.Config, bool, []netip.Addr) {
				now.Node.IPs, now.Node.Sources = []netip.Addr{c.back}, []config.AddressSource{config.RouteAddress}
				if time.Since(began) < c.away {
					now.Node.IPs, now.Node.Sources = []netip.Addr{other}, []config.AddressSource{config.LinkAddress}
				}
				return now, now.Node.IPs[0] != lan, nil
			})
			if took := time.Since(began); moved != (c.want != 0) || moved && took != c.want {
				t.Errorf("%s: moved %t after %s", name, moved, took)
			}
		})
	}
}
