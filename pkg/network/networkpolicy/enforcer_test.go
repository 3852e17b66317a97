package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// kernel is a fake one that may refuse.
type kernel struct {
	*knftables.Fake
	refuse atomic.Int64 // so many transactions
	runs   atomic.Int64
	deaf   atomic.Pointer[error] // the answer to whether there is a table
}

func (k *kernel) Run(ctx context.Context, tx *knftables.Transaction) error {
	k.runs.Add(1)
	if k.refuse.Add(-1) >= 0 {
		return errors.New("the kernel is busy")
	}
	return k.Fake.Run(ctx, tx)
}

func (k *kernel) has(part string) bool { return strings.Contains(k.Dump(), part) }

// api is a source that says what the test wants.
type api struct {
	ready     chan struct{} // closed when the policies are known
	following atomic.Int64  // how often pods and namespaces were followed
	pods      []*pod
	late      *pod // of which it tells when it is to end
}

func (a *api) Name() string          { return "test" }
func (a *api) Done() <-chan struct{} { return a.ready }

func (a *api) policies(context.Context, *enforcer) cache.DoneChecker { return a }

func (a *api) peers(ctx context.Context, e *enforcer) (synced []cache.DoneChecker, ended func()) {
	a.following.Add(1)
	e.change(func(g *engine) { g.setNamespace("x", nil) })
	for _, p := range a.pods {
		e.setPod(p)
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		<-ctx.Done()
		if a.late != nil {
			time.Sleep(time.Second)
			e.setPod(a.late)
		}
	}()
	return []cache.DoneChecker{a}, func() { <-end }
}

type bench struct {
	*enforcer
	kernel       *kernel
	bridgeKernel *kernel // the same for the table of the bridge
	api          *api
	served       chan struct{}
	gone         func() // says that the table may have been deleted
	mu           sync.Mutex
	statuses     []Status
	busy         atomic.Bool // the bridge's ports cannot be put into their group
}

func (b *bench) tell(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.statuses = append(b.statuses, s)
}

// told is the last status.
func (b *bench) told() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.statuses[len(b.statuses)-1]
}

func (b *bench) adoptOrNot(bridge string) error {
	if b.busy.Load() {
		return errors.New(bridge + " is busy")
	}
	return nil
}

func newBench(t *testing.T) *bench {
	fake := func(f knftables.Family) *kernel { return &kernel{Fake: knftables.NewFake(f, tableName)} }
	b := &bench{kernel: fake(knftables.InetFamily), bridgeKernel: fake(knftables.BridgeFamily), api: &api{ready: make(chan struct{})}, served: make(chan struct{})}
	b.enforcer = newEnforcer(network{dual[:1], "cni0"}, b.tell,
		func(f knftables.Family) (knftables.Interface, error) { return b.of(string(f)), nil })
	dir := t.TempDir()
	b.exists = func(table string) (bool, error) {
		family, _, _ := strings.Cut(table, " ")
		if err := b.kernel.deaf.Load(); err != nil {
			return false, *err
		}
		return b.of(family).has("add table"), nil
	}
	b.filter, b.adopt = func(string) error { return nil }, b.adoptOrNot
	b.lost = func(ctx context.Context, _ string, gone func()) error {
		b.gone = gone
		<-ctx.Done()
		return nil
	}
	b.enforcer.api, b.isolation = b.served, isolationCache(filepath.Join(dir, "etc", "policies.json"))
	return b
}

// of is the kernel's part for a family of tables.
func (b *bench) of(family string) *kernel {
	if family == string(knftables.BridgeFamily) {
		return b.bridgeKernel
	}
	return b.kernel
}

// start runs the enforcer until the bubble's test ends.
func (b *bench) start(t *testing.T) {
	close(b.served)
	close(b.api.ready)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.run(ctx, b.api) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

func denyAll(namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deny"},
		Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}}
}

func comes(name, addr string) cnievents.Event {
	return cnievents.Event{Verb: cnievents.Add, Sandbox: "s-" + name, Namespace: "x", Name: name, UID: name, IPs: []netip.Addr{netip.MustParseAddr(addr)}}
}

func TestNothingWithoutPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start(t)
		began := time.Now()
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil {
			t.Fatal(err)
		}
		if b.kernel.runs.Load() != 0 || b.api.following.Load() != 0 || time.Since(began) > 0 {
			t.Errorf("%d runs of nft, pods followed %d times, a pod waited %s", b.kernel.runs.Load(), b.api.following.Load(), time.Since(began))
		}
		time.Sleep(time.Hour)
		if b.kernel.runs.Load() != 0 {
			t.Error("nft is run for nothing")
		}
	})
}

func TestFirstAndLastPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.pods = []*pod{podOf("x", "a", nil, true, nil)}
		b.start(t)
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil {
			t.Fatal(err)
		}
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		if !b.kernel.has("ingress4 { 10.42.0.2 : jump i-") {
			t.Errorf("the pod is not isolated:\n%s", b.kernel.Dump())
		}
		if last := b.told(); last.Policies != 1 || last.IsolatedPods != 1 || last.Problem != "" {
			t.Errorf("told %+v", last)
		}
		if known, err := b.isolation.read(); err != nil || known["x"] != [directions]bool{true, false} {
			t.Errorf("remembered %v, %v", known, err)
		}
		b.removePolicy(denyAll("x"))
		synctest.Wait()
		if b.kernel.has("table") {
			t.Errorf("the table is still there:\n%s", b.kernel.Dump())
		}
		if known, err := b.isolation.read(); err != nil || len(known) != 0 {
			t.Errorf("remembered %v, %v", known, err)
		}
		b.setPolicy(denyAll("x")) // once more
		synctest.Wait()
		if !b.kernel.has("ingress4 { 10.42.0.2 : jump i-") || b.api.following.Load() != 2 {
			t.Errorf("the pod is not isolated again:\n%s", b.kernel.Dump())
		}
	})
}

// TestUnknownPod: a pod whose object is not known is held at once, waits a moment, and is let go when it is.
func TestUnknownPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start(t)
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		began := time.Now()
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != podTimeout {
			t.Errorf("the pod waited %s", waited)
		}
		if !b.kernel.has("ingress4 { 10.42.0.2 : jump hold }") || b.kernel.has("egress4 { 10.42.0.2") {
			t.Errorf("the pod is not held:\n%s", b.kernel.Dump())
		}
		b.setPod(podOf("x", "a", nil, true, nil))
		synctest.Wait()
		if b.kernel.has("jump hold") || !b.kernel.has("ingress4 { 10.42.0.2 : jump i-") {
			t.Errorf("the pod is held still:\n%s", b.kernel.Dump())
		}
		go func() {
			time.Sleep(podTimeout / 2)
			b.setPod(podOf("x", "b", nil, true, nil))
		}()
		began = time.Now()
		if err := b.handle(t.Context(), comes("b", "10.42.0.3")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != podTimeout/2 || !b.kernel.has("ingress4 { 10.42.0.3 : jump i-") {
			t.Errorf("the second pod waited %s", waited)
		}
		for _, wait := range []time.Duration{keepGracePeriod - podTimeout - podTimeout/2 - time.Millisecond, time.Millisecond} {
			if !b.kernel.has("ingress4 { 10.42.0.2") {
				t.Errorf("a pod that may be younger than the list is gone:\n%s", b.kernel.Dump())
			}
			time.Sleep(wait)
			if err := b.handle(t.Context(), cnievents.Event{Verb: cnievents.Keep, Sandboxes: []string{"s-b"}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if b.kernel.has("ingress4 { 10.42.0.2") || !b.kernel.has("ingress4 { 10.42.0.3") {
			t.Errorf("what the runtime has forgotten is there:\n%s", b.kernel.Dump())
		}
		if err := b.handle(t.Context(), cnievents.Event{Verb: cnievents.Del, Sandbox: "s-b"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.kernel.has("10.42.0.3") {
			t.Errorf("the pod is there:\n%s", b.kernel.Dump())
		}
	})
}

// TestRefused: after an error the whole table is written, and pods wait for it.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.pods = []*pod{podOf("x", "a", nil, true, nil), podOf("x", "b", nil, true, nil)}
		b.start(t)
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		b.kernel.refuse.Store(3)
		began := time.Now()
		if err := b.handle(t.Context(), comes("a", "10.42.0.2")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 7*retryMin {
			t.Errorf("the pod waited %s", waited)
		}
		b.kernel.refuse.Store(2)
		moves := func(i int) {
			b.setPod(podOf("y", "new", nil, false, nil, fmt.Sprintf("10.42.9.%d", i)))
			synctest.Wait()
		}
		moves(1)
		runs := b.kernel.runs.Load()
		for i := range 100 {
			moves(2 + i)
		}
		if b.kernel.runs.Load() != runs {
			t.Errorf("nft is run %d times while it refuses", b.kernel.runs.Load()-runs)
		}
		time.Sleep(time.Second)
		if !b.kernel.has("ingress4 { 10.42.0.2 : jump i-") {
			t.Errorf("the kernel has\n%s", b.kernel.Dump())
		}
		b.kernel.refuse.Store(1000)
		if err := b.handle(t.Context(), comes("b", "10.42.0.3")); err == nil || !strings.Contains(err.Error(), "could not be put in force") {
			t.Errorf("a pod was let in without: %v", err)
		}
		if last := b.told(); last.Problem != "the kernel is busy" {
			t.Errorf("told %+v", last)
		}
	})
}

// TestFlushed: rules that somebody has flushed come back.
func TestFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start(t)
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		for _, hear := range []func(){b.gone, func() { time.Sleep(checkInterval + time.Second) }} {
			tx := b.kernel.NewTransaction()
			tx.Delete(&knftables.Table{})
			if err := b.kernel.Fake.Run(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			hear()
			synctest.Wait()
			if !b.kernel.has("chain inet coracle-policy forward") {
				t.Errorf("the kernel has\n%s", b.kernel.Dump())
			}
		}
		runs := b.kernel.runs.Load()
		b.gone()
		synctest.Wait()
		if b.kernel.runs.Load() != runs {
			t.Error("the table is written although it is there")
		}
	})
}

// TestBridges: what is wrong with the bridge is told, and whatever else there is to write is written.
func TestBridges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.bridgeKernel.refuse.Store(1)
		b.start(t)
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		problem := func() string { return b.told().Problem }
		if !strings.Contains(problem(), "CONFIG_NF_TABLES_BRIDGE") || !b.kernel.has("chain inet coracle-policy forward") {
			t.Errorf("told %q; the kernel has\n%s", problem(), b.kernel.Dump())
		}
		b.gone()
		b.removePolicy(denyAll("x"))
		synctest.Wait()
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		if problem() != "" || !b.bridgeKernel.has("iifgroup 25455 ether type != { ip, ip6, arp } drop") {
			t.Errorf("told %q; the bridge has\n%s", problem(), b.bridgeKernel.Dump())
		}
		b.filter = func(bridge string) error { return errors.New(bridge + " is broken") }
		b.setPolicy(denyAll("y"))
		synctest.Wait()
		if problem() != "policies are not in force between pods of this node: cni0 is broken" {
			t.Errorf("told %q", problem())
		}
		tx := b.bridgeKernel.NewTransaction()
		tx.Delete(&knftables.Table{})
		if err := b.bridgeKernel.Fake.Run(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkInterval + time.Second)
		if !b.bridgeKernel.has("iifgroup") {
			t.Error("the table of the bridge does not come back")
		}
		b.removePolicy(denyAll("x"))
		b.removePolicy(denyAll("y"))
		synctest.Wait()
		if b.bridgeKernel.has("table") || b.kernel.has("table") {
			t.Errorf("left are\n%s%s", b.bridgeKernel.Dump(), b.kernel.Dump())
		}
	})
}

func TestLeasedTo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"10.42.0.2": "s1\r\neth0", "fd42::2": "s1\neth0", "10.42.0.3": "s2\neth0", "lock": "", "last_reserved_ip.0": "10.42.0.3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := leasedTo(dir)
	if err != nil || len(got) != 2 || len(got["s1"]) != 2 || len(got["s2"]) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := leasedTo(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestLatePod: what is told of a pod while the last policy goes is forgotten too.
func TestLatePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.late = podOf("x", "late", nil, false, nil)
		b.start(t)
		b.setPolicy(denyAll("x"))
		synctest.Wait()
		b.removePolicy(denyAll("x"))
		time.Sleep(time.Minute)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.engine.pods) > 0 {
			t.Errorf("known are %v", b.engine.pods)
		}
	})
}
