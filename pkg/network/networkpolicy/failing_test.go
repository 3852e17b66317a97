package networkpolicy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// comesTo is a pod of a namespace without policies.
func comesTo(namespace, name, addr string) cnievents.Event {
	n := comes(name, addr)
	n.Namespace = namespace
	return n
}

// TestFailingFromTheStart: if nft never writes, pods that policies are about do not come, and others do.
func TestFailingFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.kernel.refuse.Store(1000)
		b.api.pods = []*pod{podOf("x", "a", nil, true, nil)}
		b.setPolicy(denyAll("x"))
		b.start(t)
		began := time.Now()
		if err := b.handle(t.Context(), comesTo("y", "o", "10.42.0.9")); err != nil || time.Since(began) > 0 {
			t.Errorf("a pod without policies waited %s: %v", time.Since(began), err)
		}
		for range 2 {
			if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err == nil || !strings.Contains(err.Error(), "could not be put in force") {
				t.Errorf("a pod came without its policies: %v", err)
			}
		}
		b.kernel.refuse.Store(0)
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil || !b.kernel.has("ingress4 { 10.42.0.2 : jump i-") {
			t.Errorf("%v; the kernel has\n%s", err, b.kernel.Dump())
		}
	})
}

// TestSlowPeers: the policies that are known count, not those of an earlier start.
func TestSlowPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.setPolicy(denyAll("x"))
		b.listed = true
		close(b.served)
		b.kernel.refuse.Store(1)
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err == nil {
			t.Error("a pod came without its policies")
		}
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil || !b.kernel.has("ingress4 { 10.42.0.2 : jump hold }") {
			t.Errorf("%v; the kernel has\n%s", err, b.kernel.Dump())
		}
	})
}

// TestAddressOfAnother: while nft does not write, a pod that no policy is about comes, but not with an address of which
// the kernel may still have what another pod was allowed.
func TestAddressOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.pods = []*pod{podOf("x", "a", nil, true, nil), podOf("y", "o", nil, true, nil)}
		b.start(t)
		b.setPolicy(denyAll("x"))
		for _, n := range []cnievents.Event{comes("a", "10.42.0.2"), comesTo("y", "o", "10.42.0.3")} {
			if err := b.handle(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		b.kernel.refuse.Store(1000)
		for _, sandbox := range []string{"s-a", "s-o"} {
			if err := b.handle(t.Context(), cnievents.Event{Verb: cnievents.Del, Sandbox: sandbox}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for addr, comes := range map[string]bool{"10.42.0.2": false, "10.42.0.3": false, "10.42.0.4": true} {
			if err := b.handle(t.Context(), comesTo("y", "p"+addr, addr)); (err == nil) != comes {
				t.Errorf("a pod with %s: %v", addr, err)
			}
		}
		b.kernel.refuse.Store(0)
		if err := b.handle(t.Context(), comesTo("y", "q", "10.42.0.2")); err != nil {
			t.Error(err)
		}
		b.kernel.refuse.Store(1000)
		if err := b.handle(t.Context(), comesTo("y", "r", "10.42.0.3")); err != nil {
			t.Errorf("what was written holds up a pod: %v", err)
		}
	})
}

// TestHeirOfAnother: what an earlier process wrote may be about any address.
func TestHeirOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		base := newTable(b.engine.families)
		tx := b.kernel.NewTransaction()
		base.writeAll(tx, b.network)
		if err := b.kernel.Run(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		b.kernel.refuse.Store(1000)
		b.setPolicy(denyAll("x"))
		b.start(t)
		if err := b.handle(t.Context(), comesTo("y", "o", "10.42.0.9")); err == nil {
			t.Error("a pod came although the kernel may have something about its address")
		}
		b.kernel.refuse.Store(0)
		if err := b.handle(t.Context(), comesTo("y", "o", "10.42.0.9")); err != nil {
			t.Error(err)
		}
	})
}

// TestUnguarded: what keeps pods of a node from each other's bridge is tried again when it failed, ever less often.
func TestUnguarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.bridgeKernel.refuse.Store(1)
		b.start(t)
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		problem := func() string { return b.told().Problem }
		if !strings.Contains(problem(), "CONFIG_NF_TABLES_BRIDGE") {
			t.Errorf("told %q", problem())
		}
		time.Sleep(checkInterval + time.Second)
		if problem() != "" || !b.bridgeKernel.has("iifgroup") {
			t.Errorf("told %q; the bridge has\n%s", problem(), b.bridgeKernel.Dump())
		}
		b.busy.Store(true)
		b.removePolicy(denyAll("x"))
		synctest.Wait()
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		if !strings.Contains(problem(), "cni0 is busy") {
			t.Errorf("told %q", problem())
		}
		runs := b.bridgeKernel.runs.Load()
		time.Sleep(time.Hour)
		if again := b.bridgeKernel.runs.Load() - runs; again < 5 || again > 15 {
			t.Errorf("it is tried %d times an hour", again)
		}
		b.busy.Store(false)
		time.Sleep(bridgeRetryMax)
		if problem() != "" {
			t.Errorf("told %q", problem())
		}
	})
}

// TestLeftovers: tables that an earlier start left and that do not go hold up no pod while there is no policy.
func TestLeftovers(t *testing.T) {
	for name, stuck := range map[string]func(*bench) *kernel{
		"table of policies": func(b *bench) *kernel { return b.kernel },
		"table of bridges":  func(b *bench) *kernel { return b.bridgeKernel },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for _, k := range []*kernel{b.kernel, b.bridgeKernel} {
					tx := k.NewTransaction()
					tx.Add(&knftables.Table{})
					if err := k.Run(t.Context(), tx); err != nil {
						t.Fatal(err)
					}
				}
				stuck(b).refuse.Store(1000)
				b.start(t)
				began := time.Now()
				if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil || time.Since(began) > 0 {
					t.Errorf("the pod waited %s: %v", time.Since(began), err)
				}
				stuck(b).refuse.Store(0)
				time.Sleep(retryMax)
				if b.kernel.has("add table") || b.bridgeKernel.has("add table") {
					t.Errorf("left are\n%s%s", b.kernel.Dump(), b.bridgeKernel.Dump())
				}
			})
		})
	}
}
