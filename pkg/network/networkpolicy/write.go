package networkpolicy

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

// enforce writes changes until ctx is done or the last policy is gone. Changes that come during a transaction wait for the next,
// so that many changes at once need few transactions.
func (e *enforcer) enforce(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lost := e.watchDeletion(ctx)
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	whole, pause := true, retryMin
	guard, guardPause := false, checkInterval
	var again, guardAgain, sweep <-chan time.Time
	for {
		began := time.Now()
		policies, wanted, since := e.batch()
		if policies == 0 {
			return
		}
		if whole || guard {
			guard, guardAgain = false, nil
			if e.bridgeProblem = e.writeBridgeTable(ctx); e.bridgeProblem != "" {
				guardAgain = time.After(guardPause)
				guardPause = min(2*guardPause, bridgeRetryMax)
			} else {
				guardPause = checkInterval
			}
		}
		problem := cmp.Or(e.filterBridge(), e.bridgeProblem)
		switch err := e.apply(ctx, whole, wanted); {
		case ctx.Err() != nil:
			return
		case err != nil:
			e.markFailing()
			log().WithError(err).Warn("writing the table of network policies; trying again with all of it")
			problem, whole, again = err.Error(), true, time.After(pause)
			pause = min(2*pause, retryMax)
		default:
			e.metrics.measured(began, since)
			whole, again, pause = false, nil, retryMin
			e.rememberIsolation()
		}
		e.reportState(problem, time.Since(began))
		if sweep == nil && again == nil && e.hasStale() {
			sweep = time.After(sweepDelay)
		}
		changed := e.changed
		if again != nil {
			changed = nil // changes wait for the retry, so that nft does not run more often than the pause allows
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case <-guardAgain:
			guard = true
		case <-check.C:
			whole = whole || e.missing()
		case <-lost:
			if whole = whole || e.missing(); whole {
				log().Warn("the table of network policies was deleted by another program; writing it again")
			}
		case <-sweep:
			sweep = nil
			if err := e.transactTable(ctx, (*table).sweep); err != nil && ctx.Err() == nil {
				log().WithError(err).Debug("deleting unused chains; the whole table is written instead")
				whole = true
			}
		}
	}
}

// watchDeletion notifies of deletions of the table, as by firewalls that flush all rules before they write theirs. It also notifies
// of the enforcer's own writes of the whole table.
func (e *enforcer) watchDeletion(ctx context.Context) <-chan struct{} {
	lost := make(chan struct{}, 1)
	go func() {
		err := e.lost(ctx, footprint.PolicyTable, func() {
			select {
			case lost <- struct{}{}:
			default: // a notification is pending
			}
		})
		if err != nil {
			log().WithError(err).Warnf("deletions of nft tables are not noticed at once; network policies are then missing for up to %s", checkInterval)
		}
	}()
	return lost
}

// missing reports whether a table may be missing in the kernel, so that it must be written.
func (e *enforcer) missing() bool {
	there, err := e.exists(footprint.PolicyTable)
	if there && err == nil && e.bridgeProblem == "" {
		there, err = e.exists(footprint.PolicyBridgeTable)
	}
	return !there || err != nil
}

// apply writes the engine's table to the kernel, with at least all changes up to wanted.
func (e *enforcer) apply(ctx context.Context, whole bool, wanted uint64) error {
	e.offline.Lock()
	defer e.offline.Unlock()
	if err := e.write(ctx, whole); err != nil {
		return err
	}
	e.confirmKernel(false)
	e.markWritten(wanted)
	return nil
}

// write writes the engine's table to the kernel: all of it, or the changes.
func (e *enforcer) write(ctx context.Context, whole bool) error {
	if whole {
		return e.transactTable(ctx, func(t *table, tx *knftables.Transaction) { t.writeAll(tx, e.network) })
	}
	return e.transactTable(ctx, (*table).write)
}

// transactTable runs a transaction that fill makes from the engine's table. mu is not held while nft runs.
func (e *enforcer) transactTable(ctx context.Context, fill func(*table, *knftables.Transaction)) error {
	return e.transact(ctx, knftables.InetFamily, func(tx *knftables.Transaction) {
		e.mu.Lock()
		defer e.mu.Unlock()
		fill(e.engine.table, tx)
	})
}

func (e *enforcer) hasStale() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.engine.table.stale) > 0
}

// rememberIsolation writes the isolationCache.
func (e *enforcer) rememberIsolation() {
	e.mu.Lock()
	isolated := map[string][directions]bool{}
	for namespace := range e.engine.policies {
		isolated[namespace] = e.engine.isolatedDirections(namespace)
	}
	e.mu.Unlock()
	if err := e.isolation.keep(isolated); err != nil {
		log().WithError(err).Warn("remembering network policies for a start without the API")
	}
}

// reportState reports the state of the policies, if it has changed.
func (e *enforcer) reportState(problem string, took time.Duration) {
	e.mu.Lock()
	now := Status{Policies: e.policies, IsolatedPods: e.engine.isolated(), Problem: problem}
	if now.Problem == "" {
		now.Problem = strings.Join(slices.Sorted(maps.Values(e.problems)), "; ")
	}
	e.mu.Unlock()
	if e.reported == now || e.report == nil {
		return
	}
	e.reported = now
	now.Written, now.Took = time.Now(), took.Seconds()
	e.report(now)
}
