package faults

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coracle-dev/coracle/test/verdicts"
)

// initial is the value of every register before the load begins.
const initial = "initial"

// finding is a violation of consistency.
type finding struct {
	key, what string
}

func (f finding) String() string { return f.key + ": " + f.what }

// verdict is the result for a history and the final state of the cluster.
type verdict struct {
	acknowledged, unknown int       // writes
	reads                 int       // answered and checked
	lost                  []finding // acknowledged, but missing
	stale                 []finding // reads that returned an old value
	impossible            []finding // registers whose history is not linearizable
	undecided             []string  // registers for which the check took too long

	gap   time.Duration // the longest time in which no write of a client was acknowledged that should have been
	ready time.Duration // 99 of 100 questions for /readyz were answered within, if they were asked
	whole time.Duration // from the end of the fault until the cluster was healthy
}

// bad are the violations of consistency.
func (v verdict) bad() []finding { return slices.Concat(v.lost, v.stale, v.impossible) }

// leastWrites is the least number of acknowledged writes in each run: fewer show nothing.
const leastWrites = 100

// gapLimit is the longest time in which no write may be acknowledged, at a host that the fault spares, or after the fault. In
// `make test` other clusters start on the same cores meanwhile: a server that alone starts in 4 s was seen to take 16 s.
func gapLimit() time.Duration {
	if verdicts.Long() {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// readyLimit is how long 99 of 100 questions for /readyz may take while the network is bad, where cores are shared as above.
func readyLimit() time.Duration { return gapLimit() / 10 }

// problems are what must not be after a fault, of many violations the first.
func (v verdict) problems() (out []string) {
	bad := v.bad()
	for _, f := range bad[:min(20, len(bad))] {
		out = append(out, f.String())
	}
	if len(bad) > 0 {
		out = append(out, fmt.Sprintf("%d things that must not be", len(bad)))
	}
	if len(v.undecided) > 0 {
		out = append(out, fmt.Sprintf("the check of the histories of %v was not finished: nothing is known of them", v.undecided))
	}
	if v.acknowledged < leastWrites {
		out = append(out, fmt.Sprintf("only %d writes were acknowledged, of at least %d", v.acknowledged, leastWrites))
	}
	if v.gap > gapLimit() {
		out = append(out, fmt.Sprintf("no write was acknowledged for %s, of at most %s", short(v.gap), gapLimit()))
	}
	if v.ready > readyLimit() {
		out = append(out, fmt.Sprintf("of 100 questions for /readyz one took %s, of at most %s", short(v.ready), readyLimit()))
	}
	return out
}

// check looks for violations in a history. final has, by key, the values of the created objects after it, as one of the
// servers shows them; there may be several such views.
func check(ops []op, final ...map[string]string) verdict {
	var v verdict
	registers := map[string][]op{}
	for _, o := range ops {
		v.count(o)
		if o.kind != create {
			registers[o.key] = append(registers[o.key], o)
			continue
		}
		for _, view := range final {
			if got, ok := view[o.key]; o.acknowledged && (!ok || got != o.value) {
				v.lost = append(v.lost, finding{o.key, fmt.Sprintf("%q was acknowledged at %s; there is %q (%t)", o.value, short(o.end), got, ok)})
				break
			}
		}
	}
	for key, ops := range registers {
		v.stale = append(v.stale, staleReads(key, ops)...)
		history := operations(ops)
		if ordered(history) {
			continue
		}
		switch porcupine.CheckOperationsTimeout(register(), history, time.Minute) {
		case porcupine.Illegal:
			v.impossible = append(v.impossible, finding{key, "no register could have this history"})
		case porcupine.Unknown:
			v.undecided = append(v.undecided, key)
		}
	}
	return v
}

func (v *verdict) count(o op) {
	switch {
	case o.writes() && o.acknowledged:
		v.acknowledged++
	case o.writes():
		v.unknown++
	case o.acknowledged:
		v.reads++
	}
}

// staleReads finds answers that are older than others that were given before the request. It needs the revisions, and
// finds less than the model does, but it can name the reads.
func staleReads(key string, ops []op) []finding {
	answered := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return !o.acknowledged })
	byEnd := slices.SortedFunc(slices.Values(answered), func(a, b op) int { return int(a.end - b.end) })
	byCall := slices.SortedFunc(slices.Values(answered), func(a, b op) int { return int(a.call - b.call) })
	var out []finding
	var newest op // of those that ended before the call
	for _, o := range byCall {
		for len(byEnd) > 0 && byEnd[0].end < o.call {
			if byEnd[0].revision > newest.revision {
				newest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		if o.revision < newest.revision {
			out = append(out, finding{key, fmt.Sprintf("%s was answered with revision %d (%q) at %s, after %s had seen %d (%q) at %s",
				o.client, o.revision, o.value, short(o.call), newest.client, newest.revision, newest.value, short(newest.end))})
		}
	}
	return out
}

func short(d time.Duration) string { return d.Round(time.Millisecond).String() }

// register is the model: it holds one value. Each value is written only once.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			switch o := input.(op); o.kind {
			case read:
				return o.value == state, state
			case swap:
				return o.old == state, o.value
			default:
				return true, o.value
			}
		},
	}
}

// ordered reports whether a register could have this history with the operations in the order of their revisions. Most can, and it takes no search, whose time grows
// exponentially with what happened at the same time. It is not asked whether there is another order.
func ordered(history []porcupine.Operation) bool {
	rank := func(o porcupine.Operation) (int64, int) {
		if o.Input.(op).writes() {
			return o.Input.(op).revision, 0
		}
		return o.Input.(op).revision, 1 // after the write that it has seen
	}
	history = slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int {
		revisionA, kindA := rank(a)
		revisionB, kindB := rank(b)
		return cmp.Or(cmp.Compare(revisionA, revisionB), cmp.Compare(kindA, kindB), cmp.Compare(a.Call, b.Call))
	})
	model := register()
	state, now := model.Init(), int64(math.MinInt64)
	for _, o := range history {
		var ok bool
		if ok, state = model.Step(state, o.Input, nil); !ok {
			return false
		}
		if now = max(now, o.Call); now > o.Return {
			return false
		}
	}
	return true
}

// operations returns a register's history for the checker.
//
// A write without a known outcome may happen at any later time, or never. If no read returned its value, it has no
// effect and is left out. Otherwise it happened before the end of the first read that returned it. The checker would
// find this too, but in exponential time.
func operations(ops []op) []porcupine.Operation {
	seen := map[string]op{} // by value: the first read that returned it
	for _, o := range ops {
		if first, ok := seen[o.value]; o.kind == read && o.acknowledged && (!ok || o.end < first.end) {
			seen[o.value] = o
		}
	}
	var out []porcupine.Operation
	for _, o := range ops {
		end := o.end
		if !o.acknowledged {
			first, ok := seen[o.value]
			if !ok || !o.writes() {
				continue
			}
			o.revision = first.revision
			if end = first.end; end < o.call {
				end = math.MaxInt64 // read before it was written: the model reports that
			}
		}
		out = append(out, porcupine.Operation{Input: o, Call: int64(o.call), Return: int64(end)})
	}
	return out
}
