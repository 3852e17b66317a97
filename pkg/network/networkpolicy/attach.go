package networkpolicy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// handle acts on an event of the CNI plugin. For Add it returns when the policies of the pod are in force.
func (e *enforcer) handle(ctx context.Context, n cnievents.Event) error {
	switch n.Verb {
	case cnievents.Add:
		return e.attach(ctx, n)
	case cnievents.Del:
		e.change(func(g *engine) { g.detach(n.Sandbox) })
	case cnievents.Keep:
		e.change(func(g *engine) {
			for sandbox, a := range g.sandboxes {
				if !slices.Contains(n.Sandboxes, sandbox) && time.Since(a.since) >= keepGracePeriod {
					g.detach(sandbox)
				}
			}
		})
	default:
		return fmt.Errorf("unknown event %q of a pod: the CNI plugin has another version", n.Verb)
	}
	return nil
}

// keepGracePeriod is the age up to which a pod may be missing in the list of a Keep, which may be older than the pod. A pod that
// is detached by mistake has no policies.
const keepGracePeriod = time.Minute

func (e *enforcer) attach(ctx context.Context, n cnievents.Event) error {
	a := &attachment{sandbox: n.Sandbox, namespace: n.Namespace, name: n.Name, uid: podKey(n.Namespace, n.Name, n.UID), addrs: n.IPs, since: time.Now()}
	var seen chan struct{}
	number := e.change(func(g *engine) {
		if known := g.attach(a); known || g.isolatedDirections(a.namespace) == [directions]bool{} {
			return
		}
		if seen = e.seen[a.uid]; seen == nil {
			seen = make(chan struct{})
			e.seen[a.uid] = seen
		}
	})
	if e.apiReady() {
		if seen != nil { // held until its labels are known: the kubelet usually starts a pod after its object was seen
			number = e.awaitPodObject(ctx, a.uid, seen, number)
		}
		if err := e.awaitWrite(ctx, number, a); err == nil || ctx.Err() != nil || e.hasTried() {
			return err
		}
	}
	e.offline.Lock()
	if e.hasWritten() { // the API came meanwhile
		e.offline.Unlock()
		return e.awaitWrite(ctx, number, a)
	}
	defer e.offline.Unlock()
	return e.isolateWithoutAPI(ctx, n)
}

// awaitWrite waits until a change is in force for a pod, up to waitLimit.
func (e *enforcer) awaitWrite(ctx context.Context, number uint64, a *attachment) error {
	patience := e.waitLimit()
	limit := time.After(patience)
	for {
		e.mu.Lock()
		done, advanced := e.written >= number || e.unaffected(a), e.advanced
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

// unaffected reports whether a pod can start although writes fail: no policy selects it, and the kernel has no element of a former
// pod with its addresses. Without any policy, no leftover in the kernel can allow too much. The caller holds mu.
func (e *enforcer) unaffected(a *attachment) bool {
	if !e.failing || !e.listed {
		return false
	}
	return e.policies == 0 || !e.adopted && e.engine.isolatedDirections(a.namespace) == [directions]bool{} && !e.engine.table.mayHold(a.addrs)
}

// markWritten notes that a change and all before it are in force.
func (e *enforcer) markWritten(to uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = false
	if to > e.written {
		e.written = to
		e.notifyWaiters()
	}
}

// markFailing notes that a write failed.
func (e *enforcer) markFailing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = true
	e.notifyWaiters()
}

func (e *enforcer) notifyWaiters() {
	close(e.advanced)
	e.advanced = make(chan struct{})
}

// confirmKernel notes that the kernel's table equals the last write, or, if nothing, that there is none.
func (e *enforcer) confirmKernel(nothing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if nothing {
		e.engine.table.beginWrite()
	}
	e.adopted = false
	clear(e.engine.table.beingRemoved)
}

// awaitPodObject waits up to podTimeout for a pod's object, and returns the number of the change that came with it.
func (e *enforcer) awaitPodObject(ctx context.Context, uid types.UID, seen chan struct{}, number uint64) uint64 {
	select {
	case <-seen:
	case <-time.After(podTimeout):
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

// apiReady reports whether the API server serves this node.
func (e *enforcer) apiReady() bool {
	select {
	case <-e.api:
		return true
	default:
		return false
	}
}

// hasWritten reports whether this process has put policies in force.
func (e *enforcer) hasWritten() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written > 0
}

// hasTried reports whether this process has written or tried to, so that all policies are known.
func (e *enforcer) hasTried() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written > 0 || e.failing
}

func (e *enforcer) waitLimit() time.Duration {
	if e.hasWritten() {
		return writeTimeout
	}
	return syncTimeout
}
