package networkpolicy

import (
	"context"
	"fmt"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/bridgefilter"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// enforcer keeps what the kernel has as the engine wants it. One goroutine writes (run); everybody else changes the
// engine, and may wait until that is written.
type enforcer struct {
	network network
	open    func(knftables.Family) (knftables.Interface, error)
	exists  func(table string) (bool, error)
	lost    func(ctx context.Context, table string, gone func()) error // nft.Lost, but in tests
	report  func(Status)
	filter  func(bridge string) error // podlink.Filter, but in tests
	adopt   func(bridge string) error // podlink.Adopt, but in tests
	api     <-chan struct{}           // closed when there is an API to wait for
	recall  recall

	mu       sync.Mutex
	engine   *engine
	policies int           // how many there are
	listed   bool          // all policies are known
	wanted   uint64        // counts changes
	since    time.Time     // of the first change that no write has taken up
	written  uint64        // the last change that is in force
	failing  bool          // the last try to write did
	heir     bool          // the kernel may have what another process, or one without an API, has told it
	advanced chan struct{} // closed when written grows or failing is looked into again
	seen     map[types.UID]chan struct{}
	changed  chan struct{}
	problems map[string]string // with policies that could not be read, by their name

	offline   sync.Mutex                               // who writes without an API, or may be the first to write with it, is alone
	nft       sync.Mutex                               // guards kernel, and keeps transactions in order
	kernel    map[knftables.Family]knftables.Interface // those that were needed
	metrics   metrics
	told      Status
	unguarded string // why there is no table of the bridge
}

func newEnforcer(on network, report func(Status), open func(knftables.Family) (knftables.Interface, error)) *enforcer {
	return &enforcer{
		network: on, open: open, exists: nft.Exists, lost: nft.Lost, report: report, filter: bridgefilter.Filter, adopt: bridgefilter.Adopt,
		engine: newEngine(familiesOf(on.prefixes)), advanced: make(chan struct{}),
		seen: map[types.UID]chan struct{}{}, problems: map[string]string{}, changed: make(chan struct{}, 1), kernel: map[knftables.Family]knftables.Interface{}, metrics: newMetrics(),
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
// the last batch did not have.
func (e *enforcer) batch() (policies int, wanted uint64, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, e.since = e.since, time.Time{}
	return e.policies, e.wanted, since
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
	there, err := e.exists(footprint.PolicyTable)
	e.mu.Lock()
	e.heir = e.heir || there || err != nil
	e.mu.Unlock()
	if !cache.WaitFor(ctx, "", from.policies(ctx, e)) {
		return nil
	}
	e.mu.Lock()
	e.listed = true
	e.mu.Unlock()
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
		err := e.rest(ctx)
		if err == nil {
			break
		}
		e.fail()
		log().WithError(err).Warn("removing the table of network policies; trying again")
		if lifecycle.Sleep(ctx, pause) != nil {
			return false
		}
	}
	var again <-chan time.Time
	for unguard, pause := true, firstPause; ; {
		policies, wanted, _ := e.batch()
		if policies > 0 {
			return true
		}
		e.tell("", 0)
		e.recall.keep(nil)
		e.advance(wanted)
		if unguard {
			unguard = false
			if err := e.remove(ctx, footprint.PolicyBridgeTable, knftables.BridgeFamily); err != nil { // no pod waits for that
				log().WithError(err).Warn("removing the table of bridges of network policies; trying again")
				again, pause = time.After(pause), min(2*pause, guardRest)
			}
		}
		select {
		case <-e.changed:
		case <-again:
			unguard = true
		case <-ctx.Done():
			return false
		}
	}
}

// rest removes the table if nothing is to be in it, and is done with all changes then.
func (e *enforcer) rest(ctx context.Context) error {
	e.offline.Lock()
	defer e.offline.Unlock()
	policies, wanted := e.count()
	if policies > 0 {
		return nil
	}
	if err := e.remove(ctx, footprint.PolicyTable, knftables.InetFamily); err != nil {
		return err
	}
	e.taken(true)
	e.advance(wanted)
	return nil
}

// remove deletes a table of ours if it is there.
func (e *enforcer) remove(ctx context.Context, table string, family knftables.Family) error {
	there, err := e.exists(table)
	if err == nil && there {
		err = e.transact(ctx, family, func(tx *knftables.Transaction) { tx.Delete(&knftables.Table{}) })
	}
	return err
}

// transact makes one transaction of nft about our table of a family.
func (e *enforcer) transact(ctx context.Context, family knftables.Family, fill func(*knftables.Transaction)) error {
	e.nft.Lock()
	defer e.nft.Unlock()
	kernel := e.kernel[family]
	if kernel == nil {
		var err error
		if kernel, err = e.open(family); err != nil {
			return fmt.Errorf("asking for nft: %w", err)
		}
		e.kernel[family] = kernel
	}
	tx := kernel.NewTransaction()
	fill(tx)
	if tx.NumOperations() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nftPatience)
	defer cancel()
	return kernel.Run(ctx, tx)
}
