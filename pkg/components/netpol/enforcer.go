package netpol

import (
	"context"
	"fmt"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/nft"
	"github.com/coracle-dev/coracle/pkg/state"
)

// enforcer keeps what the kernel has as the engine wants it. One goroutine writes (run); everybody else changes the
// engine, and may wait until that is written.
type enforcer struct {
	network network
	open    func() (knftables.Interface, error)
	exists  func(table string) (bool, error)
	lost    func(ctx context.Context, table string, gone func()) error // nft.Lost, but in tests
	report  func(state.NetworkPolicy)
	api     <-chan struct{} // closed when there is an API to wait for
	recall  recall

	mu       sync.Mutex
	engine   *engine
	policies int           // how many there are
	wanted   uint64        // counts changes
	since    time.Time     // of the first change that no write has taken up
	rewrite  bool          // the kernel may have something else than it was told here
	written  uint64        // the last change that is in force
	advanced chan struct{} // closed when written grows
	seen     map[types.UID]chan struct{}
	changed  chan struct{}
	problems map[string]string // with policies that could not be read, by their name

	offline sync.Mutex          // one at a time writes without an API
	nft     sync.Mutex          // guards kernel, and keeps transactions in order
	kernel  knftables.Interface // nil until it is needed
	metrics metrics
	told    state.NetworkPolicy
	bridges bridges
}

func newEnforcer(on network, report func(state.NetworkPolicy), open func() (knftables.Interface, error)) *enforcer {
	return &enforcer{
		network: on, open: open, exists: nft.Exists, lost: nft.Lost, report: report,
		engine: newEngine(familiesOf(on.prefixes)), advanced: make(chan struct{}),
		seen: map[types.UID]chan struct{}{}, problems: map[string]string{}, changed: make(chan struct{}, 1), bridges: bridges{"/proc/sys/net/bridge"}, metrics: newMetrics(),
	}
}

// change changes the engine, and returns a number for written.
func (e *enforcer) change(do func(*engine)) uint64 {
	e.mu.Lock()
	do(e.engine)
	e.wanted++
	if e.since.IsZero() {
		e.since = time.Now()
	}
	number := e.wanted
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default: // the writer will see it
	}
	return number
}

func (e *enforcer) setPolicy(p *networkingv1.NetworkPolicy) {
	e.change(func(g *engine) {
		if g.policies[p.Namespace][p.Name] == nil {
			e.policies++
		}
		name := p.Namespace + "/" + p.Name
		delete(e.problems, name)
		if err := g.setPolicy(p); err != nil {
			e.problems[name] = fmt.Sprintf("NetworkPolicy %s: %v", name, err)
			log().Warn(e.problems[name])
		}
	})
}

func (e *enforcer) removePolicy(p *networkingv1.NetworkPolicy) {
	e.change(func(g *engine) {
		if g.policies[p.Namespace][p.Name] != nil {
			e.policies--
		}
		delete(e.problems, p.Namespace+"/"+p.Name)
		g.removePolicy(p.Namespace, p.Name)
	})
}

func (e *enforcer) setPod(p *pod) {
	e.mu.Lock()
	same := e.engine.refresh(p)
	e.mu.Unlock()
	if same {
		return // its status changes all the time
	}
	e.change(func(g *engine) {
		g.setPod(p)
		if waiting := e.seen[p.uid()]; waiting != nil {
			close(waiting)
			delete(e.seen, p.uid())
		}
	})
}

// replacePod takes a pod. old is what had its name before: policies and namespaces are known by their name, pods are not.
func (e *enforcer) replacePod(old, now *pod) {
	if old != nil && old.uid() != now.uid() {
		e.removePod(old)
	}
	e.setPod(now)
}

func (e *enforcer) removePod(p *pod) { e.change(func(g *engine) { g.removePod(p.uid()) }) }

// count returns the number of policies and of the last change.
func (e *enforcer) count() (policies int, wanted uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.policies, e.wanted
}

// batch returns how many policies there are, the number of the last change, and since when the first change waits that
// the last batch did not have. whole says that the kernel may have something else than it was told here.
func (e *enforcer) batch() (policies int, wanted uint64, since time.Time, whole bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, whole = e.since, e.rewrite
	e.since, e.rewrite = time.Time{}, false
	return e.policies, e.wanted, since, whole
}

// advance says that a change and all before it are in force.
func (e *enforcer) advance(to uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if to > e.written {
		e.written = to
		close(e.advanced)
		e.advanced = make(chan struct{})
	}
}

// await waits until a change is in force.
func (e *enforcer) await(ctx context.Context, number uint64) error {
	for {
		e.mu.Lock()
		done, advanced := e.written >= number, e.advanced
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// source is where policies, pods and namespaces are learnt of: the API, but in tests.
type source interface {
	// policies tells e of all policies until ctx is done.
	policies(ctx context.Context, e *enforcer) cache.DoneChecker
	// peers tells e of all pods and namespaces until ctx is done. When ended returns it tells nothing more.
	peers(ctx context.Context, e *enforcer) (synced []cache.DoneChecker, ended func())
}

// run follows the API and writes until ctx is done. The first write comes when everything is known: until then what an
// earlier process wrote stays in force.
func (e *enforcer) run(ctx context.Context, from source) error {
	if !cache.WaitFor(ctx, "", from.policies(ctx, e)) {
		return nil
	}
	for {
		if !e.idle(ctx) {
			return nil
		}
		following, stop := context.WithCancel(ctx)
		known, ended := from.peers(following, e)
		synced := cache.WaitFor(ctx, "", known...)
		if synced {
			e.enforce(ctx)
		}
		stop()
		ended() // a pod that is told of late would never be forgotten
		if !synced || ctx.Err() != nil {
			return nil
		}
		e.mu.Lock()
		e.engine.forgetPeers()
		e.mu.Unlock()
	}
}

// idle waits for the first policy. Without any there is no table.
func (e *enforcer) idle(ctx context.Context) bool {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := e.clear(ctx)
		if err == nil {
			break
		}
		log().WithError(err).Warn("removing the table of network policies; trying again")
		if !wait(ctx, pause) {
			return false
		}
	}
	for {
		policies, wanted, _, _ := e.batch()
		if policies > 0 {
			return true
		}
		e.tell("", 0)
		e.recall.keep(nil)
		e.advance(wanted)
		select {
		case <-e.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// clear removes the table if nothing is to be in it.
func (e *enforcer) clear(ctx context.Context) error {
	if policies, _ := e.count(); policies > 0 {
		return nil
	}
	if there, err := e.exists(Table); err != nil || !there {
		return err
	}
	return e.transact(ctx, func(tx *knftables.Transaction) { tx.Delete(&knftables.Table{}) })
}

// transact makes one transaction of nft.
func (e *enforcer) transact(ctx context.Context, fill func(*knftables.Transaction)) error {
	e.nft.Lock()
	defer e.nft.Unlock()
	if e.kernel == nil {
		kernel, err := e.open()
		if err != nil {
			return fmt.Errorf("asking for nft: %w", err)
		}
		e.kernel = kernel
	}
	tx := e.kernel.NewTransaction()
	fill(tx)
	if tx.NumOperations() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nftPatience)
	defer cancel()
	return e.kernel.Run(ctx, tx)
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
