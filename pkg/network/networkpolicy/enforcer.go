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

// enforcer keeps the kernel's tables as the engine computes them. One goroutine (run) writes; all others change the engine, and
// may wait until their change is written.
type enforcer struct {
	network   network
	open      func(knftables.Family) (knftables.Interface, error)
	exists    func(table string) (bool, error)
	lost      func(ctx context.Context, table string, gone func()) error // nft.Lost, except in tests
	report    func(Status)
	filter    func(bridge string) error // bridgefilter.EnableNetfilter, except in tests
	adopt     func(bridge string) error // bridgefilter.MarkPorts, except in tests
	api       <-chan struct{}           // closed when the API server serves this node
	isolation isolationCache

	mu       sync.Mutex
	engine   *engine
	policies int           // their number
	listed   bool          // all policies of the cluster are known
	wanted   uint64        // the number of the last change
	since    time.Time     // when the first change came that no write includes
	written  uint64        // the number of the last change that is in force
	failing  bool          // the last write failed
	adopted  bool          // the kernel's table may be of an earlier process, or written without the API
	advanced chan struct{} // closed when written or failing changes
	seen     map[types.UID]chan struct{}
	changed  chan struct{}
	problems map[string]string // errors of policies, by namespace/name

	offline       sync.Mutex                               // held while writing without the API, so that the first write with it waits
	nft           sync.Mutex                               // guards kernel, and orders transactions
	kernel        map[knftables.Family]knftables.Interface // opened on first use
	metrics       metrics
	reported      Status
	bridgeProblem string // why the table of the bridge could not be written
}

func newEnforcer(on network, report func(Status), open func(knftables.Family) (knftables.Interface, error)) *enforcer {
	return &enforcer{
		network: on, open: open, exists: nft.Exists, lost: nft.WatchDeleted, report: report, filter: bridgefilter.EnableNetfilter, adopt: bridgefilter.MarkPorts,
		engine: newEngine(familiesOf(on.prefixes)), advanced: make(chan struct{}),
		seen: map[types.UID]chan struct{}{}, problems: map[string]string{}, changed: make(chan struct{}, 1), kernel: map[knftables.Family]knftables.Interface{}, metrics: newMetrics(),
	}
}

// change changes the engine. It returns the number of the change, for awaitWrite.
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
	default: // the writer has a notification already
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
		return // only its status has changed, which happens often
	}
	e.change(func(g *engine) {
		g.setPod(p)
		if waiting := e.seen[p.uid()]; waiting != nil {
			close(waiting)
			delete(e.seen, p.uid())
		}
	})
}

// replacePod sets a pod. old is the former Pod of the same name: pods are known by their UID, unlike policies and namespaces.
func (e *enforcer) replacePod(old, now *pod) {
	if old != nil && old.uid() != now.uid() {
		e.removePod(old)
	}
	e.setPod(now)
}

func (e *enforcer) removePod(p *pod) { e.change(func(g *engine) { g.removePod(p.uid()) }) }

// count returns how many policies there are, and the number of the last change.
func (e *enforcer) count() (policies int, wanted uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.policies, e.wanted
}

// batch begins a write: it returns how many policies there are, the number of the last change, and when the first change came
// that no earlier batch includes.
func (e *enforcer) batch() (policies int, wanted uint64, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, e.since = e.since, time.Time{}
	return e.policies, e.wanted, since
}

// source watches policies, pods and namespaces: the API, except in tests.
type source interface {
	// policies passes all policies to e until ctx is done.
	policies(ctx context.Context, e *enforcer) cache.DoneChecker
	// peers passes all pods and namespaces to e until ctx is done. ended waits until the last one was passed.
	peers(ctx context.Context, e *enforcer) (synced []cache.DoneChecker, ended func())
}

// run watches the API and writes until ctx is done. It writes first when all objects are known; until then the table of an
// earlier process stays in force.
func (e *enforcer) run(ctx context.Context, from source) error {
	there, err := e.exists(footprint.PolicyTable)
	e.mu.Lock()
	e.adopted = e.adopted || there || err != nil
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
		ended() // or a late event would add a pod after forgetPeers
		if !synced || ctx.Err() != nil {
			return nil
		}
		e.mu.Lock()
		e.engine.forgetPeers()
		e.mu.Unlock()
	}
}

// idle removes the tables and waits for the first policy. It returns false when ctx is done.
func (e *enforcer) idle(ctx context.Context) bool {
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		err := e.removeTable(ctx)
		if err == nil {
			break
		}
		e.markFailing()
		log().WithError(err).Warn("removing the table of network policies; trying again")
		if lifecycle.Sleep(ctx, pause) != nil {
			return false
		}
	}
	var again <-chan time.Time
	for unguard, pause := true, retryMin; ; {
		policies, wanted, _ := e.batch()
		if policies > 0 {
			return true
		}
		e.reportState("", 0)
		e.isolation.keep(nil)
		e.markWritten(wanted)
		if unguard {
			unguard = false
			if err := e.deleteTable(ctx, footprint.PolicyBridgeTable, knftables.BridgeFamily); err != nil { // no pod has to wait for this
				log().WithError(err).Warn("removing the table of bridges of network policies; trying again")
				again, pause = time.After(pause), min(2*pause, bridgeRetryMax)
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

// removeTable deletes the table while there is no policy. All changes so far are in force then.
func (e *enforcer) removeTable(ctx context.Context) error {
	e.offline.Lock()
	defer e.offline.Unlock()
	policies, wanted := e.count()
	if policies > 0 {
		return nil
	}
	if err := e.deleteTable(ctx, footprint.PolicyTable, knftables.InetFamily); err != nil {
		return err
	}
	e.confirmKernel(true)
	e.markWritten(wanted)
	return nil
}

// deleteTable deletes one of coracle's tables if it exists.
func (e *enforcer) deleteTable(ctx context.Context, table string, family knftables.Family) error {
	there, err := e.exists(table)
	if err == nil && there {
		err = e.transact(ctx, family, func(tx *knftables.Transaction) { tx.Delete(&knftables.Table{}) })
	}
	return err
}

// transact runs one nft transaction on coracle's table of a family.
func (e *enforcer) transact(ctx context.Context, family knftables.Family, fill func(*knftables.Transaction)) error {
	e.nft.Lock()
	defer e.nft.Unlock()
	kernel := e.kernel[family]
	if kernel == nil {
		var err error
		if kernel, err = e.open(family); err != nil {
			return fmt.Errorf("starting nft: %w", err)
		}
		e.kernel[family] = kernel
	}
	tx := kernel.NewTransaction()
	fill(tx)
	if tx.NumOperations() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	return kernel.Run(ctx, tx)
}
