package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
)

// withoutAddons disables everything that an unused cluster does not need.
const withoutAddons = "--disable=helm-controller,local-storage,metrics-server,network-policy,servicelb"

// measureAddonsIdle compares unused servers with and without add-ons. All of them run at the same time, so that other
// load on the machine affects both kinds equally.
func measureAddonsIdle(t *testing.T, wire *hosts.Wire, pairs int, r *results) {
	type pair struct{ with, without *hosts.Server }
	var all []pair
	var idle []*hosts.Host
	for i := range pairs {
		server := func(name string, args ...string) *hosts.Server {
			h := hosts.New(t, wire, fmt.Sprint(name, i), hosts.Options{})
			idle = append(idle, h)
			s := h.Start(args...)
			h.Coracle("wait", "--timeout", "60s")
			return s
		}
		p := pair{}
		if i%2 == 0 { // a server that starts later has been idle for a shorter time
			p.with, p.without = server("with"), server("without", withoutAddons)
		} else {
			p.without, p.with = server("without", withoutAddons), server("with")
		}
		all = append(all, p)
	}
	time.Sleep(settle)
	for _, p := range all {
		var added float64
		for _, half := range []string{state.ControlPlane, state.Node} {
			with, without := privateMemory(t, p.with, half), privateMemory(t, p.without, half)
			r.add("idle: private memory that add-ons add to "+half, "MB", 0, with-without)
			added += with - without
		}
		r.add("idle: private memory that all add-ons add", "MB", 40, added)
	}
	for _, h := range idle {
		h.Kill()
	}
}

// privateMemory is the private memory of one child process, in MB.
func privateMemory(t *testing.T, s *hosts.Server, half string) float64 {
	t.Helper()
	pid, err := s.ChildPID(half)
	if err != nil {
		t.Fatal(err)
	}
	return measure(t, pid).anonMB
}
