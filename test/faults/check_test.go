package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// at makes an op that lasted from one second to another.
func at(call, end float64, o op) op {
	o.call, o.end = time.Duration(call*float64(time.Second)), time.Duration(end*float64(time.Second))
	return o
}

func wrote(value string, revision int64) op {
	return op{client: "w", kind: write, key: "r", value: value, revision: revision, acknowledged: true}
}

func saw(value string, revision int64) op {
	return op{client: "r", kind: read, key: "r", value: value, revision: revision, acknowledged: true}
}

func swapped(old, value string, revision int64) op {
	return op{client: "s", kind: swap, key: "r", old: old, value: value, revision: revision, acknowledged: true}
}

func unknown(o op) op {
	o.acknowledged, o.revision = false, 0
	return o
}

// TestCheckRegisters gives the checker invented histories of one register.
func TestCheckRegisters(t *testing.T) {
	for name, c := range map[string]struct {
		ops               []op
		stale, impossible int
	}{
		"one after the other": {ops: []op{at(0, 1, saw(initial, 1)), at(1.5, 2, wrote("a", 2)), at(3, 4, saw("a", 2))}},
		"at the same time":    {ops: []op{at(0, 4, wrote("a", 2)), at(1, 2, saw(initial, 1)), at(2.5, 3, saw("a", 2))}},
		"a lost write": {
			ops:        []op{at(0, 1, wrote("a", 2)), at(2, 3, wrote("b", 3)), at(4, 5, saw("a", 2))},
			impossible: 1, stale: 1,
		},
		"a stale read": {
			ops:        []op{at(0, 1, wrote("a", 2)), at(2, 3, saw(initial, 1)), at(4, 5, saw("a", 2))},
			impossible: 1, stale: 1,
		},
		"time runs backwards for readers": {
			ops:        []op{at(0, 9, wrote("a", 2)), at(1, 2, saw("a", 2)), at(3, 4, saw(initial, 1))},
			impossible: 1, stale: 1,
		},
		"a register that has vanished": {
			ops:        []op{at(0, 1, wrote("a", 2)), at(2, 3, saw(missing, 0))},
			impossible: 1, stale: 1,
		},
		"a swap that was cheated": {
			ops:        []op{at(0, 1, wrote("a", 2)), at(2, 3, wrote("b", 3)), at(4, 5, swapped("a", "c", 4))},
			impossible: 1,
		},
		"two swaps of one value": {
			ops:        []op{at(0, 1, wrote("a", 2)), at(2, 4, swapped("a", "b", 3)), at(2, 4, swapped("a", "c", 4))},
			impossible: 1,
		},
		"swaps one after the other": {
			ops: []op{at(0, 1, wrote("a", 2)), at(2, 4, swapped("a", "b", 3)), at(2, 4, swapped("b", "c", 4)), at(5, 6, saw("c", 4))},
		},
		"an unknown write that happened late": {
			ops: []op{at(0, 1, unknown(wrote("a", 0))), at(2, 3, saw(initial, 1)), at(4, 5, saw("a", 2)), at(6, 7, saw("a", 2))},
		},
		"an unknown write that never happened": {ops: []op{at(0, 1, unknown(wrote("a", 0))), at(2, 3, saw(initial, 1))}},
		"an unknown write that happened twice": {
			ops: []op{
				at(0, 1, unknown(wrote("a", 0))), at(2, 3, saw("a", 2)), at(4, 5, wrote("b", 3)), at(6, 7, saw("b", 3)), at(8, 9, saw("a", 4)),
			},
			impossible: 1,
		},
		"an unknown write seen before it was made": {
			ops:        []op{at(0, 1, saw("a", 2)), at(2, 3, unknown(wrote("a", 0)))},
			impossible: 1,
		},
		"a value of nobody": {ops: []op{at(0, 1, saw("z", 2))}, impossible: 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := check(c.ops)
			if len(v.stale) != c.stale || len(v.impossible) != c.impossible || len(v.lost) != 0 || len(v.undecided) != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestCheckObjects gives the checker objects of which some are missing.
func TestCheckObjects(t *testing.T) {
	made := func(key, value string, acknowledged bool) op {
		return op{client: "c", kind: create, key: key, value: value, acknowledged: acknowledged}
	}
	ops := []op{made("o1", "1", true), made("o2", "2", true), made("o3", "3", false), made("o4", "4", false), made("o5", "5", true)}
	whole := map[string]string{"o1": "1", "o2": "2", "o3": "3", "o5": "5"}
	if v := check(ops, whole); len(v.bad()) != 0 || v.acknowledged != 3 || v.unknown != 2 {
		t.Errorf("%+v", v)
	}
	other := map[string]string{"o1": "1", "o3": "3", "o5": "6"}
	v := check(ops, whole, other)
	if got := fmt.Sprint(v.lost); len(v.lost) != 2 || !strings.Contains(got, "o2") || !strings.Contains(got, "o5") {
		t.Errorf("%s", got)
	}
}

// TestOrdered: a history of random operations that is found to be ordered is one that the search finds to be possible too.
func TestOrdered(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		var ops []op
		values := []string{initial}
		for i := range 8 {
			begin := random.Float64() * 8
			end := begin + random.Float64()*4
			if revision := random.IntN(len(values)); random.IntN(2) == 0 {
				ops = append(ops, at(begin, end, saw(values[revision], int64(revision+1))))
				continue
			}
			values = append(values, fmt.Sprint(i))
			o := wrote(fmt.Sprint(i), int64(len(values)))
			if random.IntN(4) == 0 {
				o = unknown(o)
			}
			ops = append(ops, at(begin, end, o))
		}
		history := operations(ops)
		if !ordered(history) {
			continue
		}
		found++
		if !porcupine.CheckOperations(register(), history) {
			t.Fatalf("no register could have this history: %+v", ops)
		}
	}
	if found < 20 || found > 1500 {
		t.Errorf("%d of 2000 histories are ordered: too few or too many to show anything", found)
	}
}

// TestCheckIsQuick: many writes with unknown outcome must not make the check slow.
func TestCheckIsQuick(t *testing.T) {
	var ops []op
	for i := range 2000 {
		o := wrote(fmt.Sprint(i), int64(i+2))
		if i%3 == 0 {
			o = unknown(o)
		}
		begin := float64(i)
		ops = append(ops, at(begin, begin+5, o))
		if i%3 == 0 && i%2 == 0 {
			continue
		}
		ops = append(ops, at(begin+0.7, begin+0.9, saw(fmt.Sprint(i), int64(i+2))))
	}
	began := time.Now()
	if v := check(ops); len(v.bad()) != 0 || len(v.undecided) != 0 {
		t.Errorf("%+v", v)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestLongestGap(t *testing.T) {
	h := newHistory()
	for _, end := range []float64{0.5, 1, 4, 4.2, 9} {
		h.add(at(0, end, wrote("x", 1)))
	}
	h.add(at(0, 2, unknown(wrote("x", 1))), at(0, 2.5, saw("x", 1)))
	writes := func(o op) bool { return o.writes() }
	for _, c := range []struct{ from, to, want float64 }{{0, 5, 3}, {0, 9, 4.8}, {0, 20, 11}, {2, 5, 2}} {
		got := longestGap(h.all(), time.Duration(c.from*1e9), time.Duration(c.to*1e9), writes)
		if got.length() != time.Duration(c.want*1e9) {
			t.Errorf("from %v to %v: %v, want %v s", c.from, c.to, got, c.want)
		}
	}
}

// TestProblems: a run in which little happened, or that was not decided, is not a good one.
func TestProblems(t *testing.T) {
	good := verdict{acknowledged: 100, gap: gapLimit()}
	for name, c := range map[string]struct {
		change func(*verdict)
		want   string
	}{
		"good":       {func(*verdict) {}, ""},
		"lost":       {func(v *verdict) { v.lost = []finding{{"o", "is lost"}} }, "o: is lost"},
		"stale":      {func(v *verdict) { v.stale = []finding{{"r", "is stale"}} }, "r: is stale"},
		"undecided":  {func(v *verdict) { v.undecided = []string{"r"} }, "was not finished"},
		"few writes": {func(v *verdict) { v.acknowledged = 99 }, "only 99 writes"},
		"a long gap": {func(v *verdict) { v.gap += time.Millisecond }, "no write was acknowledged for"},
	} {
		v := good
		c.change(&v)
		if got := strings.Join(v.problems(), "; "); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestGaps: what a client on a broken host misses counts from the end of the fault, and a client of which nothing is heard misses all.
func TestGaps(t *testing.T) {
	made := func(client string, end float64) op {
		return at(end, end, op{client: client, kind: create, acknowledged: true})
	}
	a := &arena{clients: []*client{{host: "a"}, {host: "b"}, {host: "c"}}}
	ops := []op{made("a", 2), made("a", 4), made("a", 6), made("b", 4.5), made("b", 6)}
	since := map[string]time.Duration{"a": time.Second, "b": 4 * time.Second, "c": 4 * time.Second}
	if got, text := a.gaps(ops, since, 7*time.Second); got != 3*time.Second {
		t.Errorf("the longest gap is %s, not 3 s:\n%s", got, text)
	}
}
