package netpol

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/podnotice"
)

// notice acts on what the CNI plugin tells. It answers to a pod that comes when the policies are in force for it.
func (e *enforcer) notice(ctx context.Context, n podnotice.Notice) error {
	switch n.Verb {
	case podnotice.Add:
		return e.attach(ctx, n)
	case podnotice.Del:
		e.change(func(g *engine) { g.detach(n.Sandbox) })
	case podnotice.Keep:
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

func (e *enforcer) attach(ctx context.Context, n podnotice.Notice) error {
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
	if !e.served() {
		return e.withoutAPI(ctx, n)
	}
	if seen != nil { // it is held until its labels are known; usually they are before the kubelet starts it
		number = e.awaitPod(ctx, a.uid, seen, number)
	}
	limit, cancel := context.WithTimeout(ctx, e.patience())
	defer cancel()
	if err := e.await(limit, number); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if e.started() {
		return fmt.Errorf("network policies of pod %s/%s could not be put in force within %s; `coracle status` says why", n.Namespace, n.Name, writeWait)
	}
	if err := e.withoutAPI(ctx, n); err != nil || !e.started() {
		return err
	}
	number = e.change(func(*engine) { e.rewrite = true }) // the API came meanwhile, and knows better
	limit, cancel = context.WithTimeout(ctx, writeWait)
	defer cancel()
	return e.await(limit, number)
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

// started reports whether the policies have been known since this process started.
func (e *enforcer) started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written > 0
}

func (e *enforcer) patience() time.Duration {
	if e.started() {
		return writeWait
	}
	return syncWait
}
