package faults

import (
	"cmp"
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
)

// outage is a server whose data directory is on a disk that loses what was not flushed.
type outage struct {
	*single
	disk *disks.Disk
	took time.Duration // from the last cure of the disk until all was well
}

// critical is of the spec of an outage's pods: the kubelet evicts others from a full disk, and lets them back only after 5 minutes.
const critical = "priorityClassName: system-node-critical, tolerations: [{operator: Exists}],"

// options are the properties of an outage's server.
type options struct {
	mib     int64    // size of its disk
	mkfs    []string // further options of mkfs.ext4
	service bool     // it is installed as a service, and stopped at first
}

// newOutage installs a server. Its pods are created when it returns, and may not run yet.
func newOutage(t *testing.T, with options) *outage {
	o := &outage{disk: disks.New(t, cmp.Or(with.mib, 4096), with.mkfs...)}
	inserted := false
	o.single = &single{arena: newArenaOf(t, hosts.Plan{Servers: 1, Service: with.service, Stopped: with.service}, func(h *hosts.Host) {
		if !inserted {
			inserted = true
			h.Insert(o.disk)
			h.CopyImages()
		}
	}), replicas: few}
	o.host = o.Servers[0]
	if with.service {
		o.Install(o.host)
		o.disk.Sync() // what is there at the first start, also after a reset
	} else {
		o.deploy(critical)
	}
	return o
}

// begin starts the server for the first time and waits until its pods run.
func (o *outage) begin() {
	o.t.Helper()
	o.Start(o.host)
	o.AwaitHealthy(time.Time{}, patience)
	o.connect()
	o.deploy(critical)
	o.well()
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
	o.reset([]float64{0, 0.5, 0.9}[random.IntN(3)], random)
}

// reset resets the machine, whose disk keeps some of the blocks that were not flushed, 1 for all.
func (o *outage) reset(keep float64, random *rand.Rand) {
	o.t.Helper()
	o.gates[o.host.Name].set(true)
	o.host.Freeze() // all at once, as a power cut does
	lost := o.disk.Cut(keep, random)
	o.host.Kill()
	o.disk.Unplug()
	o.disk.Mount(o.host.Data())
	o.t.Logf("the machine was reset; %d blocks lost", lost)
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
