package faults

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// rotting are the files of a server and its node in which a bit changes, by kind, as patterns. A directory stands for all files below it.
// Those of etcd have a class of their own.
var rotting = map[string][]string{
	"authorities":  {"/var/lib/coracle/server/pki/*ca.*", "/var/lib/coracle/server/pki/etcd/*ca.*", "/var/lib/coracle/server/pki/sa.*"},
	"certificates": {"/var/lib/coracle/server/pki/*[!c][!a].crt", "/var/lib/coracle/server/pki/*[!c][!as].key", "/var/lib/coracle/node/pki"},
	"kubeconfigs":  {"/etc/coracle/kubeconfig.yaml", "/var/lib/coracle/server/etc", "/var/lib/coracle/node/etc"},
	"records":      {"/var/lib/coracle/server/*.json", "/var/lib/coracle/server/version", "/var/lib/coracle/server/control-plane", "/var/lib/coracle/ledger.json", "/var/lib/coracle/node/*.json"},
	"kubelet":      {"/var/lib/kubelet/*_state", "/var/lib/kubelet/device-plugins"},
	"leases":       {"/var/lib/coracle/node/cni"},
	"containerd":   {"/var/lib/coracle/node/containerd/*/*.db"},
	"images":       {"/var/lib/coracle/node/containerd/*content*/blobs", "/var/lib/coracle/images", "/var/lib/coracle/data/*/images"},
	"programs":     {"/var/lib/coracle/data/*/coracle-*", "/var/lib/coracle/data/*/runc", "/var/lib/coracle/data/*/containerd-shim*", "/var/lib/coracle/data/*/nft"},
}

// bitRot is a server in one of whose files a bit changes while its machine is off.
type bitRot struct {
	*single
	random        *rand.Rand
	kind          string
	file          string // that is damaged
	good, damaged []byte
}

// TestServerBitRot changes one bit of a file of a whole server and boots it: within a minute all is well as if nothing had been, or the log names
// the file, and all is well when that is as before.
func TestServerBitRot(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	var r *bitRot
	c := verdicts.Class{Name: "server-bit-rot", Kinds: []string{"certificates", "images", "records"}, Short: 1, Long: 10}
	if verdicts.Long() {
		c.Kinds = slices.Sorted(maps.Keys(rotting))
	}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		if r != nil && r.broken {
			r.end()
			r = nil
		}
		if r == nil {
			r = &bitRot{}
			r.single = newSingle(t, hosts.Plan{Servers: 1, Images: true, Options: hosts.Options{OwnPayload: true}}, func(h *hosts.Host) {
				anotherBoot(h)
				r.damage(h)
			})
			r.well()
		}
		r.t, r.broken = sub, true
		r.kind, r.random = kind, rand.New(rand.NewPCG(seed, uint64(len(kind))))
		r.kill(r.host)
		began := time.Now()
		r.boot(r.host)
		r.kind = ""
		row.Seen = r.ended()
		row.Seconds = time.Since(began).Seconds()
		r.broken = sub.Failed()
	})
}

// damage changes a bit of a file of the kind, if one is set.
func (r *bitRot) damage(h *hosts.Host) {
	if r.kind == "" {
		return
	}
	var files []string
	for _, pattern := range rotting[r.kind] {
		found, _ := filepath.Glob(h.Path(pattern))
		for _, root := range found {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					if info, err := d.Info(); err == nil && info.Size() > 0 {
						files = append(files, path)
					}
				}
				return nil
			})
		}
	}
	if len(files) == 0 {
		r.t.Fatalf("there is no file of the kind %s", r.kind)
	}
	slices.Sort(files)
	path := files[r.random.IntN(len(files))]
	r.file = strings.TrimPrefix(path, h.Path(""))
	var err error
	if r.good, err = os.ReadFile(path); err != nil {
		r.t.Fatal(err)
	}
	r.damaged = bytes.Clone(r.good)
	at, bit := r.random.IntN(len(r.good)), r.random.IntN(8)
	r.damaged[at] ^= 1 << bit
	if err := overwrite(path, r.damaged); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%s: bit %d of byte %d of %d changes", r.file, bit, at, len(r.good))
}

// overwrite replaces a file by one with other content and the same owner, mode and time: it may have names elsewhere.
func overwrite(path string, data []byte) error {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return err
	}
	other := path + ".other"
	err := errors.Join(os.WriteFile(other, data, 0o600), os.Chown(other, int(info.Uid), int(info.Gid)), os.Chmod(other, os.FileMode(info.Mode&0o777)))
	return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, other, []unix.Timespec{info.Atim, info.Mtim}, 0), os.Rename(other, path))
}

// ended is how it ended, in a word.
func (r *bitRot) ended() string {
	r.t.Helper()
	err := r.wait()
	named := strings.Contains(r.Running(r.host).Log(), filepath.Base(r.file))
	now, _ := os.ReadFile(r.host.Path(r.file))
	switch {
	case err == nil && named:
		return "named and mended"
	case err == nil && bytes.Equal(now, r.damaged):
		return "harmless"
	case err == nil:
		return "made again"
	case !named:
		r.t.Errorf("%s is damaged, no line of the log names it, and after %s: %v", r.file, recovery, err)
		return ""
	}
	if err := r.Running(r.host).Stop(); err != nil {
		r.t.Logf("stopping: %v", err)
	}
	if err := overwrite(r.host.Path(r.file), r.good); err != nil {
		r.t.Fatal(err)
	}
	r.Start(r.host)
	if err := r.wait(); err != nil {
		r.t.Errorf("%s is as before, and after %s: %v", r.file, recovery, err)
	}
	return "refused and named"
}

// wait waits until all is well, or the program has ended, and returns what is not well.
func (r *bitRot) wait() (err error) {
	for began := time.Now(); time.Since(began) < recovery; time.Sleep(200 * time.Millisecond) {
		if err = r.Healthy(time.Time{}, 0); err == nil {
			err = r.podsRun()
		}
		if err == nil || r.Running(r.host).Ended() {
			return err
		}
	}
	return err
}
