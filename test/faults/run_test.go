package faults

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// quiet is how long a broken cluster must stay healthy afterwards.
const quiet = 2 * time.Second

// patience is how long a cluster may take to become healthy again without help.
const patience = 90 * time.Second

// normal is some 40 writes a second from four hosts.
var normal = pace{beat: 200 * time.Millisecond, workers: 2, pause: 300 * time.Millisecond, timeout: 15 * time.Second}

// busy is why a run has no verdict.
const busy = "other programs need the processors: what /readyz takes says nothing about the network"

// survive fails the test if the cluster loses writes, returns stale reads or does not serve after a fault.
func (a *arena) survive(t *testing.T, f fault) verdict {
	v := a.suffer(t, f, normal)
	spoiled := verdicts.Long() && v.ready > readyLimit() && !a.answersFast(f.asks(a))
	if spoiled {
		v.ready = 0
	}
	for _, problem := range v.problems() {
		t.Errorf("%s: %s", f.name, problem)
	}
	if spoiled && !t.Failed() {
		t.Skip(busy)
	}
	return v
}

// suffer applies one fault while clients work, waits until the cluster is healthy, and checks the histories.
func (a *arena) suffer(t *testing.T, f fault, p pace) verdict {
	a.t = t
	a.loads++
	l, err := begin(t.Context(), fmt.Sprintf("%s-%d", f.name, a.loads), a.clients, p)
	if err != nil {
		t.Fatal(err)
	}
	a.load = l
	a.awaitServed()
	var asked *readiness
	if f.asks != nil {
		if !a.calm(f.asks(a)) {
			l.end()
			t.Skip(busy)
		}
		asked = a.watchReady(f.asks(a))
	}
	from := l.seen.now()
	hurt := f.do(a)
	ready, answers := asked.end(hurt)
	mended := time.Now()
	after := l.seen.now()
	patience := cmp.Or(f.patience, patience)
	whole, err := a.healed(mended, hurt, patience)
	if err == nil && f.after != nil {
		f.after(a, hurt)
	}
	if err == nil {
		a.awaitWrites(f)
	}
	to := l.seen.now()
	ops := l.end()
	if err != nil {
		t.Fatalf("%s: the cluster is not whole %s after: %v", f.name, patience, err)
	}
	ops = f.left(l.seen.began, ops)
	v := check(ops, a.views(l)...)
	v.whole, v.ready = whole.Sub(mended), ready
	since := map[string]time.Duration{} // by host: when it should be served
	for _, h := range a.Hosts() {
		since[h.Name] = from
		if f.stops || slices.Contains(hurt, h) {
			since[h.Name] = after
		}
	}
	gaps := ""
	v.gap, gaps = a.gaps(ops, since, to)
	t.Logf("%s: %s; broken for %s, whole %s after\n%s", f.name, v, short(after-from), short(v.whole), gaps+answers)
	if err := a.SameData(); err != nil {
		t.Errorf("%s: %v", f.name, err)
	}
	return v
}

// gaps returns the longest time that a host's client was not served, from the time when it should be, and reports it for each
// client, with the longest duration of a single request.
func (a *arena) gaps(ops []op, since map[string]time.Duration, to time.Duration) (longest time.Duration, out string) {
	for _, c := range a.clients {
		from := since[c.host]
		mine := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.client != c.host })
		writes := longestGap(mine, from, to, func(o op) bool { return o.kind == create })
		reads := longestGap(mine, from, to, func(o op) bool { return o.kind == read })
		longest = max(longest, writes.length())
		var served, failed time.Duration
		failures := 0
		for _, o := range mine {
			if o.acknowledged {
				served = max(served, o.end-o.call)
			} else {
				failures++
				failed = max(failed, o.end-o.call)
			}
		}
		out += fmt.Sprintf("\tclient on %s: no write for %s, no read for %s; slowest answer %s; %d of %d failed, the slowest after %s", c.host,
			short(writes.length()), short(reads.length()), short(served), failures, len(mine), short(failed))
		out += fmt.Sprintf("; counted from %s on\n", short(from))
	}
	return longest, out
}

// killChild kills one of coracle's child processes on a host. It waits if the process does not run at the moment.
func (a *arena) killChild(h *hosts.Host, role string) {
	a.t.Helper()
	a.await("the "+role+" process on "+h.Name+" was killed", func() error {
		pid, err := a.Running(h).ChildPID(role)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	})
}
