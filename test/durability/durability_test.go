package durability

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/disks"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// patience is the limit of the time from the end of a fault until the member serves again.
const patience = time.Minute

// trial is one run: a member on a disk, and writers.
type trial struct {
	*machine
	disk    *disks.Disk
	writers *writers
	random  *rand.Rand
	row     *verdicts.Row
	ended   time.Time // when the fault ended
}

func newTrial(t *testing.T, kind string, seed uint64, row *verdicts.Row) *trial {
	t.Helper()
	m := newMachine(t)
	t.Cleanup(m.remove)
	d := disks.New(t, 1024)
	t.Cleanup(m.kill)
	d.Mount(m.dir)
	m.boot()
	return &trial{machine: m, disk: d, writers: m.write(kind), random: rand.New(rand.NewPCG(seed, uint64(len(kind)))), row: row}
}

// cut takes the power away and boots again. Of the blocks that were not flushed it keeps none, or some at random.
func (r *trial) cut() {
	r.t.Helper()
	r.freeze()
	lost := r.disk.Cut([]float64{0, 0, 0.5, 0.9}[r.random.IntN(4)], r.random)
	r.kill()
	r.disk.Unplug()
	r.disk.Heal()
	r.disk.Mount(r.dir)
	r.t.Logf("power cut after %d acknowledged writes; %d blocks lost", r.writers.count(), lost)
	r.ended = time.Now()
	r.boot()
}

// well checks that the member serves, that all that was acknowledged is there, and that it still is after a power cut.
func (r *trial) well() {
	r.t.Helper()
	if err := r.await(patience); err != nil {
		r.t.Fatal(err)
	}
	r.row.Seconds = time.Since(r.ended).Seconds()
	if err := r.writers.await(20, patience); err != nil {
		r.t.Error(err)
	}
	r.writers.end()
	for _, when := range []string{"", " after the next power cut"} {
		if when != "" {
			r.cut()
			if err := r.await(patience); err != nil {
				r.t.Fatalf("%v%s", err, when)
			}
		}
		lost := r.writers.lost(r.t, r.machine)
		r.row.Acknowledged, r.row.Lost = len(r.writers.acknowledged), max(r.row.Lost, len(lost))
		if len(lost) > 0 {
			r.t.Errorf("%d of %d acknowledged writes are lost%s, such as %s", len(lost), len(r.writers.acknowledged), when, lost[0])
		}
	}
}

// TestPowerCuts cuts the power of the member's disk.
func TestPowerCuts(t *testing.T) {
	slots.Take(t)
	c := verdicts.Class{Name: "etcd-power-cut", Kinds: []string{"first-start", "under-load", "in-recovery"}, Short: 1, Long: 100}
	c.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		r := newTrial(t, kind, seed, row)
		wait := time.Duration(r.random.IntN(1000)) * time.Millisecond
		if kind != "first-start" {
			if err := r.writers.await(50, patience); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(wait)
		r.cut()
		if kind == "in-recovery" {
			<-time.After(wait / 3)
			r.cut()
		}
		r.well()
	})
}

// TestFailingDisk fails one or more writes or a flush of the member's disk, or lets a thin disk run out of space, at the n-th request in the
// first start or under load, and heals it.
func TestFailingDisk(t *testing.T) {
	slots.Take(t)
	c := verdicts.Class{Name: "etcd-failing-disk", Kinds: []string{"one-write", "writes", "flush", "no-space"}, Short: 1, Long: 150}
	c.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		r := newTrial(t, kind, seed, row)
		if seed%2 == 0 { // else in the first start
			if err := r.writers.await(50, patience); err != nil {
				t.Fatal(err)
			}
		}
		_, _, before := r.disk.Counts()
		n := int(seed)
		if n > 100 {
			n = 1 + r.random.IntN(2000)
		}
		switch kind {
		case "one-write":
			r.disk.FailWrite(n, 1)
		case "writes":
			r.disk.FailWrite(n, 1<<30)
		case "flush":
			r.disk.FailFlush(n)
		case "no-space":
			r.disk.FillUp(n)
		}
		for failed, deadline := before, time.Now().Add(20*time.Second); failed == before; _, _, failed = r.disk.Counts() {
			if time.Now().After(deadline) {
				t.Fatal("the disk has not failed in 20 s")
			}
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(time.Duration(r.random.IntN(1000)) * time.Millisecond)
		_, _, failed := r.disk.Counts()
		r.disk.Heal()
		r.ended = time.Now()
		row.Seen = "went on"
		if r.disk.ReadOnly() || r.await(3*time.Second) != nil {
			row.Seen = "after a reboot"
			r.cut()
		} else if r.starts > 1 {
			row.Seen = "after a restart"
		}
		t.Logf("%d requests failed; %s", failed-before, row.Seen)
		r.well()
	})
}

// TestStalls lets no flush of the member's disk end for 1 to 10 seconds. The member waits, and goes on.
func TestStalls(t *testing.T) {
	slots.Take(t)
	c := verdicts.Class{Name: "etcd-stalling-disk", Kinds: []string{"stall"}, Short: 1, Long: 20}
	c.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		r := newTrial(t, kind, seed, row)
		if err := r.writers.await(50, patience); err != nil {
			t.Fatal(err)
		}
		stall := time.Duration(1+(seed-1)%10) * time.Second
		r.writers.longestPause()
		r.disk.Stall(stall)
		r.ended = time.Now().Add(stall)
		if err := r.writers.await(20, patience); err != nil {
			t.Error(err)
		}
		row.Seen = "waited"
		if longest := r.writers.longestPause(); longest < stall/2 {
			t.Errorf("no flush ended for %s, and no pause between two writes was longer than %s", stall, longest)
		}
		if r.starts > 1 {
			t.Errorf("the member was started %d times", r.starts)
		}
		r.well()
	})
}
