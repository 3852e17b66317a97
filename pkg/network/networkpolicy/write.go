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

// enforce writes what changes until ctx is done or the last policy is gone. What changes while it writes comes with the
// next transaction, so that many changes at a time are few transactions.
func (e *enforcer) enforce(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lost := e.listen(ctx)
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	whole, pause := true, firstPause
	guard, guardPause := false, checkEvery
	var again, guardAgain, sweep <-chan time.Time
	for {
		began := time.Now()
		policies, wanted, since := e.batch()
		if policies == 0 {
			return
		}
		if whole || guard {
			guard, guardAgain = false, nil
			if e.unguarded = e.guard(ctx); e.unguarded != "" {
				guardAgain = time.After(guardPause)
				guardPause = min(2*guardPause, guardRest)
			} else {
				guardPause = checkEvery
			}
		}
		problem := cmp.Or(e.filtered(), e.unguarded)
		switch err := e.put(ctx, whole, wanted); {
		case ctx.Err() != nil:
			return
		case err != nil:
			e.fail()
			log().WithError(err).Warn("writing the table of network policies; trying again with all of it")
			problem, whole, again = err.Error(), true, time.After(pause)
			pause = min(2*pause, lastPause)
		default:
			e.metrics.measured(began, since)
			whole, again, pause = false, nil, firstPause
			e.keep()
		}
		e.tell(problem, time.Since(began))
		if sweep == nil && again == nil && e.stale() {
			sweep = time.After(sweepAfter)
		}
		changed := e.changed
		if again != nil {
			changed = nil // what has changed comes with the next try: nft is not asked more often than the pause lets it
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
				log().Warn("somebody has deleted the table of network policies; it is written again")
			}
		case <-sweep:
			sweep = nil
			if err := e.locked(ctx, (*table).sweep); err != nil && ctx.Err() == nil {
				log().WithError(err).Debug("deleting unused chains; the whole table is written instead")
				whole = true
			}
		}
	}
}

// listen hears of others who delete the table, as programs do that flush all rules before they write theirs. Our own
// writing of the whole table is heard of too.
func (e *enforcer) listen(ctx context.Context) <-chan struct{} {
	lost := make(chan struct{}, 1)
	go func() {
		err := e.lost(ctx, footprint.PolicyTable, func() {
			select {
			case lost <- struct{}{}:
			default: // it will be looked at
			}
		})
		if err != nil {
			log().WithError(err).Warnf("if others flush nft rules, network policies come back after %s only", checkEvery)
		}
	}()
	return lost
}

// missing reports whether a table has to be written because there may be none.
func (e *enforcer) missing() bool {
	there, err := e.exists(footprint.PolicyTable)
	if there && err == nil && e.unguarded == "" {
		there, err = e.exists(footprint.PolicyBridgeTable)
	}
	return !there || err != nil
}

// put brings the kernel's table to what the engine wants, up to a change at least.
func (e *enforcer) put(ctx context.Context, whole bool, wanted uint64) error {
	e.offline.Lock()
	defer e.offline.Unlock()
	if err := e.write(ctx, whole); err != nil {
		return err
	}
	e.taken(false)
	e.advance(wanted)
	return nil
}

// write brings the kernel's table to what the engine wants.
func (e *enforcer) write(ctx context.Context, whole bool) error {
	if whole {
		return e.locked(ctx, func(t *table, tx *knftables.Transaction) { t.writeAll(tx, e.network) })
	}
	return e.locked(ctx, (*table).write)
}

// locked makes a transaction from the engine's table. The engine is free while nft runs.
func (e *enforcer) locked(ctx context.Context, fill func(*table, *knftables.Transaction)) error {
	return e.transact(ctx, knftables.InetFamily, func(tx *knftables.Transaction) {
		e.mu.Lock()
		defer e.mu.Unlock()
		fill(e.engine.table, tx)
	})
}

func (e *enforcer) stale() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.engine.table.stale) > 0
}

// keep remembers in which namespaces pods are isolated.
func (e *enforcer) keep() {
	e.mu.Lock()
	isolating := map[string][directions]bool{}
	for namespace := range e.engine.policies {
		isolating[namespace] = e.engine.isolating(namespace)
	}
	e.mu.Unlock()
	if err := e.recall.keep(isolating); err != nil {
		log().WithError(err).Warn("remembering network policies for a start without an API")
	}
}

// tell reports how policies are in force, if that has changed.
func (e *enforcer) tell(problem string, took time.Duration) {
	e.mu.Lock()
	now := Status{Policies: e.policies, IsolatedPods: e.engine.isolated(), Problem: problem}
	if now.Problem == "" {
		now.Problem = strings.Join(slices.Sorted(maps.Values(e.problems)), "; ")
	}
	e.mu.Unlock()
	if e.told == now || e.report == nil {
		return
	}
	e.told = now
	now.Written, now.Took = time.Now(), took.Seconds()
	e.report(now)
}
