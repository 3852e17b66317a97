package networkpolicy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// notice acts on what the CNI plugin tells. It answers to a pod that comes when the policies are in force for it.
func (e *enforcer) notice(ctx context.Context, n cnievents.Notice) error {
	switch n.Verb {
	case cnievents.Add:
		return e.attach(ctx, n)
	case cnievents.Del:
		e.change(func(g *engine) { g.detach(n.Sandbox) })
	case cnievents.Keep:
		e.change(func(g *engine) {
			for sandbox, a := range g.local {
				if !slices.Contains(n.Sandboxes, sandbox) && time.Since(a.since) >= young {
					g.detach(sandbox)
				}
			}
		})
	default:
		return fmt.Errorf("unknown notice %q of a pod: the CNI plugin is another version's", n.Verb)
	}
	return nil
}

// young is what the list of a Keep may be too old to have: a pod that is taken for gone is open.
const young = time.Minute

func (e *enforcer) attach(ctx context.Context, n cnievents.Notice) error {
	a := &attachment{sandbox: n.Sandbox, namespace: n.Namespace, name: n.Name, uid: identity(n.Namespace, n.Name, n.UID), addrs: n.IPs, since: time.Now()}
	var seen chan struct{}
	number := e.change(func(g *engine) {
		if known := g.attach(a); known || g.isolating(a.namespace) == [directions]bool{} {
			return
		}
		if seen = e.seen[a.uid]; seen == nil {
			seen = make(chan struct{})
			e.seen[a.uid] = seen
		}
	})
	if e.served() {
		if seen != nil { // it is held until its labels are known; usually they are before the kubelet starts it
			number = e.awaitPod(ctx, a.uid, seen, number)
		}
		if err := e.await(ctx, number, a); err == nil || ctx.Err() != nil || e.writing() {
			return err
		}
	}
	e.offline.Lock()
	if e.started() { // the API came meanwhile, and knows better
		e.offline.Unlock()
		return e.await(ctx, number, a)
	}
	defer e.offline.Unlock()
	return e.withoutAPI(ctx, n)
}

// await waits until a change is in force for a pod, but not for ever.
func (e *enforcer) await(ctx context.Context, number uint64, a *attachment) error {
	patience := e.patience()
	limit := time.After(patience)
	for {
		e.mu.Lock()
		done, advanced := e.written >= number || e.unconcerned(a), e.advanced
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-advanced:
		case <-limit:
			return fmt.Errorf("network policies of pod %s/%s could not be put in force within %s; `coracle status` says why", a.namespace, a.name, patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unconcerned reports whether a pod needs no write that fails: no policy is about it, and the kernel has nothing about
// its addresses that was another pod's. Without any policy nothing that the kernel has allows too much. The caller holds
// mu.
func (e *enforcer) unconcerned(a *attachment) bool {
	if !e.failing || !e.listed {
		return false
	}
	return e.policies == 0 || !e.heir && e.engine.isolating(a.namespace) == [directions]bool{} && !e.engine.table.mayHold(a.addrs)
}

// advance says that a change and all before it are in force.
func (e *enforcer) advance(to uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = false
	if to > e.written {
		e.written = to
		e.wake()
	}
}

// fail says that nft does not write.
func (e *enforcer) fail() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = true
	e.wake()
}

func (e *enforcer) wake() {
	close(e.advanced)
	e.advanced = make(chan struct{})
}

// taken says that the kernel has what it was told last and nothing else, or that it has nothing at all.
func (e *enforcer) taken(nothing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if nothing {
		e.engine.table.told()
	}
	e.heir = false
	clear(e.engine.table.telling)
}

// awaitPod waits a moment for a pod's object, and returns the change that came with it.
func (e *enforcer) awaitPod(ctx context.Context, uid types.UID, seen chan struct{}, number uint64) uint64 {
	select {
	case <-seen:
	case <-time.After(podWait):
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen[uid] == seen {
		delete(e.seen, uid)
		return number
	}
	return e.wanted
}

// served reports whether there is an API that may be waited for.
func (e *enforcer) served() bool {
	select {
	case <-e.api:
		return true
	default:
		return false
	}
}

// started reports whether policies were put in force since this process started.
func (e *enforcer) started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written > 0
}

// writing reports whether they were, or that was tried: what holds is known then.
func (e *enforcer) writing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written > 0 || e.failing
}

func (e *enforcer) patience() time.Duration {
	if e.started() {
		return writeWait
	}
	return syncWait
}
