package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// chosen are the faults in CORACLE_TEST_FAULTS, in that order, or all.
func chosen(t *testing.T) []fault {
	all := slices.Concat(faults, often)
	names := strings.Fields(os.Getenv("CORACLE_TEST_FAULTS"))
	if len(names) == 0 {
		return faults
	}
	var out []fault
	for _, name := range names {
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("CORACLE_TEST_FAULTS: there is no fault %q", name)
		}
		out = append(out, all[i])
	}
	return out
}

// TestFaults applies one fault after the other to a cluster of three servers and an agent. CORACLE_TEST_FAULTS selects
// faults, in order. CORACLE_TEST_FAULT_ROUNDS is for long runs: all faults so many times, in random order.
func TestFaults(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	list := chosen(t)
	rounds, _ := strconv.Atoi(os.Getenv("CORACLE_TEST_FAULT_ROUNDS"))
	if rounds > 0 {
		list = random(t, list, rounds)
	}
	a := newArena(t, 3, 1)
	a.long = rounds > 0
	for _, f := range list {
		if !t.Run(f.name, func(t *testing.T) { a.survive(t, f) }) {
			break // the next fault would find an unhealthy cluster
		}
	}
	t.Logf("%d faults: %s", a.runs, a.total)
	if !t.Failed() && os.Getenv("CORACLE_TEST_FAULTS") == "" {
		t.Run("reads-from-caches", func(t *testing.T) { seesThePast(t, a) })
	}
}

// seesThePast proves that the clients and the checker would notice a stale read: a server that is cut off answers from
// its cache, and those answers are stale.
func seesThePast(t *testing.T, a *arena) {
	p := normal
	p.cached = true
	if v := a.suffer(t, fault{"reads-from-caches", followerCutOff}, p); len(v.stale) == 0 || len(v.impossible) == 0 {
		t.Error("a server that was cut off answered from its cache, and the check did not notice")
	}
}

// random returns a list several times over, including faults that are not run by default, shuffled.
func random(t *testing.T, list []fault, rounds int) []fault {
	if os.Getenv("CORACLE_TEST_FAULTS") == "" {
		list = slices.Concat(list, often)
	}
	list = slices.Repeat(list, rounds)
	seed, err := strconv.ParseUint(os.Getenv("CORACLE_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("CORACLE_TEST_SEED=%d", seed)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestOneServer kills the control plane of a single server, with the same clients and checks.
func TestOneServer(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	a := newArena(t, 1, 0)
	a.survive(t, fault{"killed", func(a *arena) []*hosts.Host {
		for range 3 {
			a.killChild(a.Servers[0], "control-plane")
			a.awaitServed()
		}
		return nil
	}})
}

// String is the verdict in one line.
func (v verdict) String() string {
	return fmt.Sprintf("%d writes acknowledged, %d unknown, %d lost; %d reads, %d stale; %d impossible histories, %d undecided",
		v.acknowledged, v.unknown, len(v.lost), v.reads, len(v.stale), len(v.impossible), len(v.undecided))
}
