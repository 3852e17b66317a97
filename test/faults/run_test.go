package faults

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// quiet is how long a broken cluster must stay healthy afterwards.
const quiet = 2 * time.Second

// patience is how long a cluster may take to become healthy again without help, also on a slow machine.
const patience = 5 * time.Minute

// normal is some 40 writes a second from four hosts.
var normal = pace{beat: 200 * time.Millisecond, workers: 2, pause: 300 * time.Millisecond, timeout: 15 * time.Second}

// survive fails the test if the cluster loses writes or returns stale reads after a fault.
func (a *arena) survive(t *testing.T, f fault) {
	v := a.suffer(t, f, normal)
	a.runs++
	a.sum(v)
	for _, finding := range v.bad()[:min(20, len(v.bad()))] {
		t.Errorf("%s: %s", f.name, finding)
	}
	if len(v.bad()) > 0 {
		t.Errorf("%s: %d things that must not be", f.name, len(v.bad()))
	}
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
	from := l.seen.now()
	hurt := f.do(a)
	mended := time.Now()
	broken := l.seen.now() - from
	whole, err := a.healed(mended, hurt, patience)
	ops := l.end()
	if err != nil {
		t.Fatalf("%s: the cluster is not whole %s after: %v", f.name, patience, err)
	}
	v := check(ops, a.views(l)...)
	t.Logf("%s: %s; broken for %s, whole %s after\n%s", f.name, v, short(broken), short(whole.Sub(mended)), a.gaps(ops, from, hurt))
	return v
}

func (a *arena) sum(v verdict) {
	a.total.acknowledged += v.acknowledged
	a.total.unknown += v.unknown
	a.total.reads += v.reads
	a.total.lost = append(a.total.lost, v.lost...)
	a.total.stale = append(a.total.stale, v.stale...)
	a.total.impossible = append(a.total.impossible, v.impossible...)
	a.total.undecided = append(a.total.undecided, v.undecided...)
}

// gaps reports for each host's client how long it was not served since the fault, and the longest duration of a single
// request.
func (a *arena) gaps(ops []op, from time.Duration, hurt []*hosts.Host) string {
	out := ""
	for _, c := range a.clients {
		isHurt := slices.ContainsFunc(hurt, func(h *hosts.Host) bool { return h.Name == c.host })
		mine := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.client != c.host })
		if len(mine) == 0 {
			continue
		}
		to := mine[len(mine)-1].end
		writes := longestGap(mine, from, to, func(o op) bool { return o.kind == create })
		reads := longestGap(mine, from, to, func(o op) bool { return o.kind == read })
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
		if isHurt {
			out += " (its host is the broken one)"
		}
		out += "\n"
	}
	return out
}

// killChild kills one of coracle's child processes on a host. It waits a little if it does not run at the moment.
func (a *arena) killChild(h *hosts.Host, role string) {
	a.t.Helper()
	var err error
	for range 50 {
		var pid int
		if pid, err = a.Running(h).ChildPID(role); err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
			a.t.Logf("killed the %s process on %s", role, h.Name)
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err != nil {
		a.t.Logf("there is no %s process on %s to kill: %v", role, h.Name, err)
	}
}
