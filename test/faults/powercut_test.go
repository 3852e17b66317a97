package faults

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/disks"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// outage is a server whose data directory is on a disk that loses what was not flushed.
type outage struct {
	*single
	disk *disks.Disk
}

// newOutage installs a server. Its pods are created when it returns, and may not run yet.
func newOutage(t *testing.T) *outage {
	o := &outage{disk: disks.New(t, 4096)}
	inserted := false
	o.single = newSingle(t, hosts.Plan{Servers: 1}, func(h *hosts.Host) {
		if !inserted {
			inserted = true
			h.Insert(o.disk)
			h.CopyImages()
		}
	})
	return o
}

// restore restores a backup that it makes, and starts the server.
func (o *outage) restore() {
	o.t.Helper()
	o.host.Coracle("etcd", "snapshot", "save", "/root/backup")
	if err := o.Running(o.host).Stop(); err != nil {
		o.t.Fatal(err)
	}
	o.host.Coracle("etcd", "snapshot", "restore", "--yes", "/root/backup")
	o.Start(o.host)
}

// cut takes the power away and boots again: of the blocks that were not flushed it keeps none, or some at random.
func (o *outage) cut(random *rand.Rand) {
	o.t.Helper()
	o.gates[o.host.Name].set(true)
	o.host.Freeze() // all at once, as a power cut does
	lost := o.disk.Cut([]float64{0, 0.5, 0.9}[random.IntN(3)], random)
	o.host.Kill()
	o.disk.Unplug()
	o.disk.Mount(o.host.Data())
	o.t.Logf("power cut; %d blocks lost", lost)
	o.boot(o.host)
}

// well waits until the pods run again, and checks what pods need of the disk: the content of images, and addresses.
func (o *outage) well() {
	o.t.Helper()
	o.single.well()
	if err := o.layers(); err != nil {
		o.t.Error(err)
	}
}

// layers returns an error if the content of an image differs from its digest, which is the name of its file.
func (o *outage) layers() error {
	blobs, err := filepath.Glob(o.host.Data("node", "containerd", "*content*", "blobs", "sha256", "*"))
	if err == nil && len(blobs) == 0 {
		err = errors.New("no content of images was found")
	}
	for _, blob := range blobs {
		err = errors.Join(err, checkDigest(blob))
	}
	return err
}

func checkDigest(blob string) error {
	f, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", hash.Sum(nil)); got != filepath.Base(blob) {
		return fmt.Errorf("content %s of an image is damaged", filepath.Base(blob))
	}
	return nil
}

// addImage puts an archive of an image where coracle finds and imports it while it runs. Its content is that of others, with other bytes
// behind the archive's end, so that it is another file.
func (o *outage) addImage(t *testing.T, seed uint64) {
	t.Helper()
	archive := hosts.Images(t)[int(seed)%len(hosts.Images(t))]
	data, err := os.ReadFile(archive)
	if err == nil {
		err = os.WriteFile(o.host.Data("images", fmt.Sprintf("again-%d.tar", seed%3)), append(data, make([]byte, 1024*seed)...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPowerCuts cuts the power of a server under load, while it starts, and while it imports an image; `make faults` also right after its
// very first start, and after a backup was restored.
func TestPowerCuts(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	var o *outage
	c := verdicts.Class{Name: "server-power-cut", Kinds: []string{"under-load", "in-start", "in-import"}, Short: 1, Long: 36}
	if verdicts.Long() {
		c.Kinds = append(c.Kinds, "after-install", "after-restore")
	}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		if o != nil && (o.broken || kind == "after-install") {
			o.end()
			o = nil
		}
		if o == nil {
			if o = newOutage(t); kind != "after-install" {
				o.well()
			}
		}
		o.t, o.broken = sub, true // until all is well
		if kind == "after-restore" {
			o.restore()
		}
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		v := o.suffer(sub, fault{name: "power-" + kind, stops: true, do: func(a *arena) []*hosts.Host {
			pause(random, 2*time.Second)
			if kind == "in-import" {
				o.addImage(sub, seed)
				pause(random, 2*time.Second)
			}
			o.cut(random)
			if kind == "in-start" {
				pause(random, 4*time.Second)
				o.cut(random)
			}
			return a.Servers
		}}, normal)
		row.Acknowledged, row.Lost, row.Gap = v.acknowledged, len(v.lost), v.gap.Seconds()
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		began := time.Now()
		o.well()
		row.Seconds = (v.whole + time.Since(began)).Seconds()
		o.broken = sub.Failed()
	})
}
