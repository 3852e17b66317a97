package networkpolicy

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// TestWithoutAPI: pods of namespaces that had policies are held, others are not, and what is in the kernel stays.
func TestWithoutAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if err := b.isolation.keep(map[string][directions]bool{"x": {true, false}}); err != nil {
			t.Fatal(err)
		}
		other := comes("o", "10.42.0.9")
		other.Namespace = "y"
		for _, n := range []cnievents.Event{other, comes("a", "10.42.0.2"), comes("b", "10.42.0.3")} {
			if err := b.handle(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		for _, addr := range []string{"10.42.0.2", "10.42.0.3"} {
			if !b.kernel.has("ingress4 { " + addr + " : jump hold }") {
				t.Errorf("%s is not held:\n%s", addr, b.kernel.Dump())
			}
		}
		if !b.bridgeKernel.has("iifgroup") {
			t.Error("the bridge has no table")
		}
		if b.kernel.has("10.42.0.9") {
			t.Error("a pod of another namespace is held")
		}
		b.api.pods = []*pod{podOf("x", "a", nil, true, nil), podOf("x", "b", nil, true, nil)}
		b.setPolicy(denyAll("x"))
		b.start(t)
		if b.kernel.has("jump hold") || !b.kernel.has("ingress4 { 10.42.0.3 : jump i-") {
			t.Errorf("with the API there is\n%s", b.kernel.Dump())
		}
	})
}

// TestAddressOfAHeldPod: the next pod with the address is not held if its namespace had no policies.
func TestAddressOfAHeldPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if err := b.isolation.keep(map[string][directions]bool{"x": {true, true}}); err != nil {
			t.Fatal(err)
		}
		next := comes("o", "10.42.0.2")
		next.Namespace = "y"
		for _, n := range []cnievents.Event{comes("a", "10.42.0.2"), comes("b", "10.42.0.3"), next} {
			if err := b.handle(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		if b.kernel.has("10.42.0.2") || !b.kernel.has("ingress4 { 10.42.0.3 : jump hold }") {
			t.Errorf("the kernel has\n%s", b.kernel.Dump())
		}
	})
}

// TestDamagedCache: without the API and with a cache that cannot be read, no pod starts without its policies.
func TestDamagedCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if err := b.isolation.keep(map[string][directions]bool{"x": {true, false}}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(string(b.isolation), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err == nil {
			t.Error("the pod starts")
		}
	})
}

// TestUnknownTable: a table that may be there is not taken for one that is not.
func TestUnknownTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if err := b.isolation.keep(map[string][directions]bool{"x": {true, false}}); err != nil {
			t.Fatal(err)
		}
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil {
			t.Fatal(err)
		}
		b.kernel.deaf.Store(new(errors.New("no buffer space available")))
		err := b.handle(t.Context(), comes("b", "10.42.0.3"))
		if err == nil || !b.kernel.has("ingress4 { 10.42.0.2 : jump hold }") {
			t.Errorf("a pod came (%v), and the kernel has\n%s", err, b.kernel.Dump())
		}
		b.start(t)
		if !b.kernel.has("add table") {
			t.Error("the table is gone unseen")
		}
		b.kernel.deaf.Store(nil)
		time.Sleep(time.Minute)
		if b.kernel.has("add table") {
			t.Error("the table stays although there is no policy")
		}
	})
}

// TestSlowAPI: a pod waits for the policies while there is an API, but not for ever.
func TestSlowAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		close(b.served)
		began := time.Now()
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != syncTimeout || b.kernel.runs.Load() != 0 {
			t.Errorf("the pod waited %s, %d runs of nft", waited, b.kernel.runs.Load())
		}
	})
}

// TestOverlap: who writes without an API writes nothing over what the API has just put in force.
func TestOverlap(t *testing.T) {
	b := newBench(t)
	if err := b.isolation.keep(map[string][directions]bool{"x": {true, false}}); err != nil {
		t.Fatal(err)
	}
	b.api.pods = []*pod{podOf("x", "a", nil, true, nil)}
	b.setPolicy(denyAll("x"))
	within := func(limit time.Duration, done func() bool) bool {
		for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if done() {
				return true
			}
		}
		return false
	}
	exists, looking, looked := b.exists, make(chan struct{}), atomic.Bool{}
	b.exists = func(table string) (bool, error) {
		there, err := exists(table)
		if looked.CompareAndSwap(false, true) {
			close(looking)
			within(100*time.Millisecond, b.hasWritten)
		}
		return there, err
	}
	came := make(chan error, 1)
	go func() { came <- b.handle(t.Context(), comes("a", "10.42.0.2")) }()
	<-looking
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	close(b.served)
	close(b.api.ready)
	go func() { ended <- b.run(ctx, b.api) }()
	if err := <-came; err != nil {
		t.Error(err)
	}
	if !within(5*time.Second, b.hasWritten) {
		t.Error("nothing is written")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if b.kernel.has("jump hold") || !b.kernel.has("ingress4 { 10.42.0.2 : jump i-") {
		t.Errorf("the kernel has\n%s", b.kernel.Dump())
	}
}
