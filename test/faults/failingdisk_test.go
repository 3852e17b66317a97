package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// recovery is the limit of the time from the cure of a disk until all is well.
const recovery = time.Minute

// ways are how a disk fails, chosen by the seed: one write, all writes from one on, a flush, and writes to new blocks of a thin disk.
var ways = []string{"one-write", "writes", "flush", "no-space"}

// strain lets the disk fail while do works, from a write or flush on that the seed decides, of the first or of so many, and heals it.
// Where the kernel makes the file system read-only, the machine is reset. It returns when do has ended and well is content; the error
// is do's, and killed says that the reset ended it.
func (o *outage) strain(seed uint64, random *rand.Rand, writes int, do, well func() error) (failed error, killed bool) {
	o.t.Helper()
	n := 1 + int(seed)/len(ways)
	if seed/uint64(len(ways))%2 == 1 {
		n = 1 + random.IntN(writes)
	}
	way := ways[seed%uint64(len(ways))]
	switch way {
	case "one-write":
		o.disk.FailWrite(n, 1)
	case "writes":
		o.disk.FailWrite(n, 1<<30)
	case "flush":
		o.disk.FailFlush(1 + n/8)
	case "no-space":
		o.disk.FillUp(n)
	}
	_, _, before := o.disk.Counts()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	hosts.Eventually(o.t, 30*time.Second, func() error {
		if _, _, now := o.disk.Counts(); now == before {
			return errors.New("the disk has not failed yet")
		}
		return nil
	})
	after := time.Since(began)
	pause(random, 2*time.Second)
	_, _, now := o.disk.Counts()
	o.disk.Heal()
	o.t.Logf("%s %d: the first of %d failed after %s", way, n, now-before, short(after))
	failed, killed = o.cured(ended, well, random)
	if text := fmt.Sprint(failed); failed != nil && !killed {
		o.t.Logf("it says: %s", text)
		o.sentence(text)
	}
	o.sentence(o.Running(o.host).Log())
	return failed, killed
}

// cured waits, after the cure of the disk, until a command has ended and all is well.
func (o *outage) cured(ended <-chan error, well func() error, random *rand.Rand) (failed error, killed bool) {
	o.t.Helper()
	over := false
	began := time.Now()
	for ; ; <-time.After(50 * time.Millisecond) {
		if o.disk.ReadOnly() && !killed {
			o.sentence(o.Running(o.host).Log())
			killed = !over
			o.reset(1, random)
			began = time.Now()
		}
		if !over {
			select {
			case failed = <-ended:
				over = true
			default:
			}
		}
		err := errors.New("the command has not ended")
		if over {
			err = well()
		}
		if o.took = time.Since(began); err == nil {
			return failed, killed
		}
		if o.took > recovery {
			o.t.Fatalf("not well %s after the disk was healed: %v", recovery, err)
		}
	}
}

// sentence fails the test if a program's output has a stack trace.
func (o *outage) sentence(output string) {
	o.t.Helper()
	for _, sign := range []string{"panic:", "goroutine ", "SIGSEGV", "runtime error"} {
		if i := strings.Index(output, sign); i >= 0 {
			o.t.Errorf("it is no sentence:\n%s", output[max(0, i-500):min(len(output), i+1500)])
			return
		}
	}
}

// healthy is nil if the cluster is.
func (o *outage) healthy() error { return o.Healthy(time.Time{}, 0) }

// store writes some objects, which are acknowledged when it returns.
func (o *outage) store(name string, many int) {
	o.t.Helper()
	for n := range many {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, n)}}
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		_, err := o.direct[o.host.Name].CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
		cancel()
		if err != nil {
			o.t.Fatal(err)
		}
	}
}

// stored is how many of these objects there are.
func (o *outage) stored(name string) (many int) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	list, err := o.direct[o.host.Name].CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, name+"-") {
			many++
		}
	}
	return many
}

// restoring restores a backup on the failing disk, and again if that fails. What it leaves is the data of before or that of the backup.
func (o *outage) restoring(seed uint64, random *rand.Rand, row *verdicts.Row) {
	o.t.Helper()
	const backup, kept = "/srv/backup", "/srv/kept"
	before, after := fmt.Sprintf("before-%d", seed), fmt.Sprintf("after-%d", seed)
	o.store(before, 20)
	o.host.Coracle("etcd", "snapshot", "save", backup)
	o.store(after, 5)
	o.stop()
	mounted := seed%2 == 0 // a disk for the backups
	if mounted {
		o.host.Run("sh", "-ec", "mkdir -p "+kept+" /var/lib/coracle/server/snapshots; echo one >"+kept+"/file; mount --bind "+kept+" /var/lib/coracle/server/snapshots")
	}
	restore := func() error {
		_, err := o.host.TryCoracle("etcd", "snapshot", "restore", "--yes", backup)
		return err
	}
	failed, killed := o.strain(seed, random, 150, restore, func() error {
		if !o.up() {
			return nil
		}
		return o.healthy()
	})
	row.Seen = "restored"
	if killed || failed != nil {
		row.Seen = "restored at the second try"
		if !o.up() {
			o.Start(o.host)
		}
		o.await("the server runs after a restore that failed", o.healthy)
		has, later := o.stored(before), o.stored(after)
		o.t.Logf("there are %d of 20 and %d of 5", has, later)
		if has != 20 || later != 0 && later != 5 {
			o.t.Errorf("after a restore that failed there are %d of 20 objects of the backup, and %d of 5 of later", has, later)
		}
		o.stop()
		if err := restore(); err != nil {
			o.t.Fatalf("restoring again: %v", err)
		}
	}
	if former, _ := filepath.Glob(o.host.Data("server.before-restore", "etcd", "member", "wal", "*.wal")); len(former) == 0 {
		o.t.Error("the data that was replaced is gone")
	}
	if text, err := os.ReadFile(o.host.Path(kept + "/file")); mounted && (err != nil || string(text) != "one\n") {
		o.t.Errorf("on the disk that is mounted for backups: %q, %v", text, err)
	}
	o.Start(o.host)
	o.await("the server runs after a restore", o.healthy)
	if has, later := o.stored(before), o.stored(after); has != 20 || later != 0 {
		o.t.Errorf("after a restore there are %d of 20 objects of the backup, and %d of later", has, later)
	}
	row.Acknowledged += 20
}

// up reports whether coracle runs, or is started again and again.
func (o *outage) up() bool { return !o.Running(o.host).Ended() }

func (o *outage) stop() {
	o.t.Helper()
	if err := o.Running(o.host).Stop(); err != nil {
		o.t.Fatal(err)
	}
}

// TestFailingDisks lets a server's disk fail during its very first start, an upgrade, a restore, or an import of an image.
func TestFailingDisks(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	var shared *outage // by all runs but those of a first start
	c := verdicts.Class{Name: "server-failing-disk", Kinds: []string{"restore"}, Short: 1, Long: 50}
	if verdicts.Long() {
		c.Kinds = append(c.Kinds, "import", "upgrade", "first-start")
	}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		o := shared
		switch {
		case kind == "first-start":
			o = newOutage(sub, options{service: true})
			o.strain(seed, random, 800, func() error { o.Start(o.host); return nil }, o.healthy)
			o.connect()
			o.deploy(critical)
			o.well()
		case o == nil || o.broken:
			if o != nil {
				o.end()
			}
			o = newOutage(t, options{service: true})
			o.begin()
			shared = o
		}
		o.t, o.broken = sub, true // until all is well
		f := fault{name: "failing-" + kind, stops: true}
		intact := func() error { return nil }
		during := func() {}
		switch kind {
		case "restore":
			o.restoring(seed, random, row)
		case "import":
			during = func() { intact = o.importing(seed, random, row) }
		case "upgrade":
			during = func() { o.upgrading(seed, random, row) }
			f.undone = o.undone
		}
		if kind == "upgrade" {
			defer func() { sub.Logf("the last upgrade: %s", o.trial().Text()) }()
		}
		f.do = func(a *arena) []*hosts.Host {
			during()
			a.awaitServed()
			o.cut(random)
			return a.Servers
		}
		v := o.suffer(sub, f, normal)
		row.Acknowledged, row.Lost, row.Seconds = row.Acknowledged+v.acknowledged, len(v.lost), max(o.took, v.whole).Seconds()
		if v.whole > recovery {
			sub.Errorf("well again only %s after the power cut", short(v.whole))
		}
		v.gap = 0 // the limits are those of the recovery
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		o.well()
		if err := errors.Join(intact(), o.tidy()); err != nil {
			sub.Error(err)
		}
		o.broken = sub.Failed()
	})
}
