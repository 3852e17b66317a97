package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// chosen are the names of the faults of a class that are in CORACLE_TEST_FAULTS, in that order, or of those of this lane.
func chosen(short, long []fault) (names []string) {
	list := short
	if verdicts.Long() {
		list = long
	}
	if names = strings.Fields(os.Getenv("CORACLE_TEST_FAULTS")); len(names) > 0 {
		return slices.DeleteFunc(names, func(name string) bool { return named(long, name) == nil })
	}
	for _, f := range list {
		names = append(names, f.name)
	}
	return names
}

// named is the fault with a name, or nil.
func named(all []fault, name string) *fault {
	for _, f := range all {
		if f.name == name {
			return &f
		}
	}
	return nil
}

// TestFaults applies one fault after the other to a cluster of three servers and an agent. CORACLE_TEST_FAULTS selects
// faults, in order; package verdicts says how many runs of each are made.
func TestFaults(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	var a *arena
	// apply applies a fault to the cluster, and records the verdict.
	apply := func(sub *testing.T, f *fault, seed uint64, row *verdicts.Row) {
		if a != nil && a.broken {
			a.end() // the next fault would find an unhealthy cluster
			a = nil
		}
		if a == nil {
			a = newArena(t, 3, 1)
			a.long = verdicts.Long()
		}
		a.broken = true // until all is well
		defer func() {
			if sub.Skipped() {
				a.broken = false // nothing was done
			}
		}()
		a.random = rand.New(rand.NewPCG(seed, uint64(len(f.name))))
		v := a.survive(sub, *f)
		row.Acknowledged, row.Lost, row.Seconds, row.Gap, row.Ready = v.acknowledged, len(v.lost), v.whole.Seconds(), v.gap.Seconds(), v.ready.Seconds()
		a.broken = sub.Failed()
	}
	all := slices.Concat(faults, others)
	c := verdicts.Class{Name: "cluster", Kinds: chosen(faults, all), Short: 1, Long: 2}
	n := verdicts.Class{Name: "network", Kinds: chosen(networkFaults[:1], networkFaults), Short: 1, Long: 20}
	for _, name := range strings.Fields(os.Getenv("CORACLE_TEST_FAULTS")) {
		if !slices.Contains(slices.Concat(c.Kinds, n.Kinds), name) {
			t.Fatalf("CORACLE_TEST_FAULTS: there is no fault %q", name)
		}
	}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		apply(sub, named(all, kind), seed, row)
	})
	n.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		apply(sub, named(networkFaults, kind), seed, row)
	})
	if !t.Failed() && !verdicts.Long() && os.Getenv("CORACLE_TEST_FAULTS") == "" {
		t.Run("reads-from-caches", func(t *testing.T) { seesThePast(t, a) })
	}
}

// seesThePast proves that the clients and the checker would notice a stale read: a server that is cut off answers from
// its cache, and those answers are stale.
func seesThePast(t *testing.T, a *arena) {
	p := normal
	p.cached = true
	if v := a.suffer(t, fault{name: "reads-from-caches", do: followerCutOff}, p); len(v.stale) == 0 || len(v.impossible) == 0 {
		t.Error("a server that was cut off answered from its cache, and the check did not notice")
	}
}

// TestOneServer kills the control plane of a single server, with the same clients and checks, and then commands that change its keys and certificates.
func TestOneServer(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	a := newArenaOf(t, sealedServer(), writePassphrase)
	a.survive(t, fault{name: "killed", do: func(a *arena) []*hosts.Host {
		for range 3 {
			a.killChild(a.Servers[0], "control-plane")
			a.awaitServed()
		}
		return nil
	}})
	t.Run("commands", func(t *testing.T) { killSome(t, a) })
}

// String is the verdict in one line.
func (v verdict) String() string {
	return fmt.Sprintf("%d writes acknowledged, %d unknown, %d lost; %d reads, %d stale; %d impossible histories, %d undecided",
		v.acknowledged, v.unknown, len(v.lost), v.reads, len(v.stale), len(v.impossible), len(v.undecided))
}
