package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/coracle-dev/coracle/test/growth"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// bootLoop is a server that is started again and again.
type bootLoop struct {
	*single
	boots int
	first growth.Figures // what there was after the tenth
}

// The boots of a run, and the one after which nothing may grow.
const (
	boots   = 50
	settled = 10
)

// TestBootLoop starts a server 50 times in each run, while clients write: it is killed, or its host loses power, at any moment of its start and
// afterwards. Then the pods run, and what it leaves on the machine is not more than after the tenth start.
func TestBootLoop(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	var l *bootLoop
	c := verdicts.Class{Name: "endurance", Kinds: []string{"50-boots"}, Long: 10}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		if l != nil && l.broken {
			l.end()
			l = nil
		}
		if l == nil {
			l = &bootLoop{single: newSingle(t, hosts.Plan{Servers: 1, Images: true}, anotherBoot)}
			l.well()
		}
		l.t, l.broken = sub, true
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		v := l.suffer(sub, fault{name: "boots", stops: true, do: func(a *arena) []*hosts.Host {
			for range boots {
				if l.again(random); l.boots == settled {
					l.settle()
				}
			}
			return a.Servers
		}}, pace{beat: 500 * time.Millisecond, workers: 1, pause: 300 * time.Millisecond, timeout: 5 * time.Second})
		row.Acknowledged, row.Lost, row.Gap = v.acknowledged, len(v.lost), v.gap.Seconds()
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		began := time.Now()
		l.well()
		row.Seconds = (v.whole + time.Since(began)).Seconds()
		l.tidy()
		last := l.least(func(f growth.Figures) bool { return len(growth.Grown(l.first, f)) == 0 })
		for _, line := range growth.Grown(l.first, last) {
			sub.Errorf("grown from boot %d to boot %d: %s", settled, l.boots, line)
		}
		sub.Logf("after %d boots:\n%s", l.boots, last)
		l.broken = sub.Failed()
	})
}

// anotherBoot gives a host the kernel's identifier of another boot: it would have this machine's each time.
func anotherBoot(h *hosts.Host) {
	const id, file = "/proc/sys/kernel/random/boot_id", "/run/boot_id"
	if err := os.WriteFile(h.Path(file), []byte(uuid.NewUUID()+"\n"), 0o444); err == nil {
		h.Run("mount", "--bind", file, id)
	}
}

// again starts the server again, with the host or alone: while it starts, or a moment after it serves clients.
func (l *bootLoop) again(random *rand.Rand) {
	l.t.Helper()
	if random.IntN(2) == 0 {
		l.awaitServed()
	}
	pause(random, 3*time.Second)
	if random.IntN(2) == 0 {
		l.kill(l.host)
		l.boot(l.host)
	} else {
		l.Running(l.host).Kill()
		l.Start(l.host)
	}
	l.boots++
}

// settle notes what there is after the first boots.
func (l *bootLoop) settle() {
	l.t.Helper()
	if _, err := l.healed(time.Now(), l.Servers, patience); err != nil {
		l.t.Fatal(err)
	}
	l.well()
	l.first = l.least(func(growth.Figures) bool { return false })
	l.t.Logf("after %d boots:\n%s", l.boots, l.first)
}

// least is what is there without what comes and goes: the kubelet tidies up once a minute. It returns early with figures that are good.
func (l *bootLoop) least(good func(growth.Figures) bool) growth.Figures {
	l.t.Helper()
	var samples []growth.Figures
	turn := time.NewTicker(5 * time.Second)
	defer turn.Stop()
	for began := time.Now(); time.Since(began) < 75*time.Second; <-turn.C {
		samples = append(samples, l.figures())
		if good(growth.Least(samples)) {
			break
		}
	}
	return growth.Least(samples)
}

// figures are what is there and should not be more at a later boot.
func (l *bootLoop) figures() growth.Figures {
	l.t.Helper()
	f := l.host.Figures()
	for name, n := range l.Running(l.host).Usage() {
		if strings.HasPrefix(name, "descriptors of ") { // memory and threads are those of a young process
			f[name] = n
		}
	}
	f["keys of etcd"] = l.keys()
	return f
}

// keys is the number of objects that etcd has, without events, which end by themselves, and what clients write.
func (l *bootLoop) keys() (n float64) {
	l.t.Helper()
	hosts.Eventually(l.t, askTimeout, func() error {
		n = 0
		return l.Etcd(l.host, func(ctx context.Context, c *clientv3.Client, _ string) error {
			all, err := c.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return err
			}
			for _, kv := range all.Kvs {
				if key := string(kv.Key); !strings.HasPrefix(key, "/registry/events/") && !strings.Contains(key, "/"+namespace+"/") {
					n++
				}
			}
			if n == 0 {
				return fmt.Errorf("etcd has none of %d keys", len(all.Kvs))
			}
			return nil
		})
	})
	return n
}

// tidy removes what clients have written.
func (l *bootLoop) tidy() {
	l.t.Helper()
	hosts.Eventually(l.t, askTimeout, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		return l.direct[l.host.Name].CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
}
