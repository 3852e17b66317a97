package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// shortages are what a disk lacks, and what coracle status says of it.
var shortages = map[string]struct {
	begin func(o *outage)
	says  string
}{
	"disk-full":   {func(o *outage) { o.host.FillDisk() }, "MiB of space left and needs 128 MiB: make room"},
	"inodes-full": {func(o *outage) { o.host.FillInodes() }, "inodes free and needs 2000: remove files"},
	"read-only":   {func(o *outage) { o.disk.Abort() }, "is on a read-only file system"},
}

// sleepers are the process IDs of the pods' containers, as the host sees them.
func (o *outage) sleepers() string {
	o.t.Helper()
	return o.host.Run("sh", "-c", "pgrep -f '^sleep 99999' || :")
}

// starts is how often containerd has become ready.
func (o *outage) starts() int { return strings.Count(o.Running(o.host).Log(), "containerd: ready") }

// lack lets the disk of a server lack something for a while. With each third seed the service is restarted meanwhile, and with each
// third the machine, and with each sixth it is too long without room for containerd. It returns what happened.
func (o *outage) lack(kind string, seed uint64, random *rand.Rand) (seen string) {
	o.t.Helper()
	shortage, seen := shortages[kind], "kept running"
	pods := o.sleepers()
	shortage.begin(o)
	says := func() error {
		out, err := o.host.TryCoracle("status")
		text := fmt.Sprint(out, err)
		if o.sentence(text); !strings.Contains(text, shortage.says) {
			return fmt.Errorf("status does not say why: %s", text)
		}
		return nil
	}
	o.await("status says that it is "+kind, says)
	pause(random, 3*time.Second)
	switch seed % 3 {
	case 1:
		seen = "service restarted"
		starts := o.starts()
		o.host.Run("rc-service", "coracle", "restart")
		pause(random, 4*time.Second)
		if seed%6 == 4 && kind == "disk-full" {
			seen += ", which waited for room in vain" // so that containerd forgot the containers
			pods = ""
			o.await("containerd starts", func() error {
				if now := o.starts(); now <= starts {
					return fmt.Errorf("it has started %d times", now)
				}
				return nil
			})
		}
	case 2:
		seen = "machine restarted"
		if kind == "read-only" {
			break // which is its end
		}
		o.reset(1, random)
		pods = ""
		pause(random, 4*time.Second)
	}
	if now := o.sleepers(); pods != "" && now != pods {
		o.t.Errorf("the pods' processes were %q and are %q", pods, now)
	}
	o.await("status says so still", says)
	o.sentence(o.Running(o.host).Log())
	if kind == "read-only" {
		o.reset(1, random)
	} else {
		o.host.FreeDisk()
	}
	return seen
}

// TestFullDisks fills the disk of a server, or makes it read-only.
func TestFullDisks(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	var o *outage
	c := verdicts.Class{Name: "full-disk", Kinds: []string{"disk-full"}, Short: 1, Long: 20}
	if verdicts.Long() {
		c.Kinds = append(c.Kinds, "inodes-full", "read-only")
	}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		if o == nil || o.broken {
			if o != nil {
				o.end()
			}
			o = newOutage(t, options{service: true, mib: 1800, mkfs: []string{"-N", "12000"}})
			o.begin()
		}
		o.t, o.broken = sub, true // until all is well
		v := o.suffer(sub, fault{name: kind, stops: true, do: func(a *arena) []*hosts.Host {
			row.Seen = o.lack(kind, seed, random)
			return a.Servers
		}}, normal)
		row.Acknowledged, row.Lost, row.Seconds = v.acknowledged, len(v.lost), v.whole.Seconds()
		if v.whole > recovery {
			sub.Errorf("well again only after %s", short(v.whole))
		}
		v.gap = 0 // the limit is the one above
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		o.well()
		o.broken = sub.Failed()
	})
}
