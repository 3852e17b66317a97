package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// machineWide are the settings of the whole machine that coracle changes on the nodes, as paths below /proc/sys.
var machineWide = []string{
	"fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
	"net/netfilter/nf_conntrack_max",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// Forwarding is switched on for each interface separately. The machine-wide switch keeps its value, because other programs
// read it, and switching it off at the end would stop their forwarding.
const (
	forwardAll  = "net/ipv4/ip_forward"
	forwardEach = "net/ipv4/conf/*/forwarding"
)

// notInterfaces are another name of forwardAll, and what new network namespaces begin with.
var notInterfaces = []string{"net/ipv4/conf/all/forwarding", "net/ipv4/conf/default/forwarding"}

// sysctls owns the kernel settings that local clusters change, for all clusters of the machine in whatever Store they are.
// The first cluster's Hold records the values, the last one's Release restores them. All state is in one file, which is
// read and written under a lock, so that no process needs to live for it.
type sysctls struct {
	dir  string // of the file and its lock; in /run, because values are valid until the next boot
	proc string // /proc/sys
	// earlier are the clusters of a version that had no such file and stored the values in the cluster's record, the oldest first.
	earlier []heldSysctls
}

func (s Store) sysctls() sysctls {
	return sysctls{dir: "/run/coracle-clusters", proc: "/proc/sys", earlier: s.earlierSysctls()}
}

// earlierSysctls returns what the records of an earlier version hold.
func (s Store) earlierSysctls() (all []heldSysctls) {
	records, _ := s.List() // a record that cannot be read holds nothing
	for _, r := range records {
		if len(r.Sysctls) > 0 {
			all = append(all, heldSysctls{r.Holder.Boot, r.Sysctls, map[string]Process{s.realRecordFile(r.Name): r.Holder}})
		}
	}
	return all
}

// heldSysctls is the content of the file.
type heldSysctls struct {
	Boot string `json:"boot"`
	// Values are the settings before a cluster changed them, by name.
	Values map[string]string `json:"values"`
	// Holders are the clusters that need the changed values: their holder processes by the path of their record.
	Holders map[string]Process `json:"holders"`
}

// Hold records the values of all settings that a cluster changes, unless another cluster has recorded them, and lets this
// machine forward IPv4 packets between its interfaces, of which the one to the nodes is there already. record is the path of
// the cluster's record.
func (s sysctls) Hold(ctx context.Context, record string, holder Process) error {
	return s.update(ctx, func(h *heldSysctls) error {
		h.Holders[record] = holder
		interfaces := s.interfaces()
		for _, name := range append(interfaces, machineWide...) {
			if value, err := s.read(name); err == nil && h.Values[name] == "" {
				h.Values[name] = value
			}
		}
		if err := s.save(*h); err != nil {
			return err
		}
		for _, name := range interfaces {
			if value, err := s.read(name); errors.Is(err, fs.ErrNotExist) || value == "1" {
				continue
			}
			if err := s.write(name, "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("letting this machine forward the nodes' packets: %w", err)
			}
		}
		return nil
	})
}

// Release ends a cluster's need of the changed values. If no other cluster needs them, all settings get their former values.
func (s sysctls) Release(ctx context.Context, record string) error {
	if !paths.Exists(s.dir) && len(s.earlier) == 0 {
		return nil
	}
	return s.update(ctx, func(h *heldSysctls) error {
		delete(h.Holders, record)
		return nil
	})
}

// update changes the file under its lock and restores the settings if no holder is left.
func (s sysctls) update(ctx context.Context, change func(*heldSysctls) error) error {
	unlock, err := lockDir(ctx, s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	h, err := s.load()
	if err != nil {
		return err
	}
	for _, e := range s.earlier {
		if e.Boot == h.Boot {
			maps.Copy(h.Holders, e.Holders)
			maps.Copy(e.Values, h.Values)
			h.Values = e.Values
		}
	}
	if err := change(&h); err != nil {
		return err
	}
	if len(h.Holders) > 0 {
		return s.save(h)
	}
	if err := s.restore(h.Values); err != nil {
		return errors.Join(err, s.save(h))
	}
	removeLockedDir(s.dir, s.file())
	return nil
}

// load reads the file, without holders that are gone: a cluster holds as long as its process lives or its record exists,
// which Down or Sweep removes together with the cluster.
func (s sysctls) load() (heldSysctls, error) {
	h := heldSysctls{Boot: state.BootID(), Values: map[string]string{}, Holders: map[string]Process{}}
	var found heldSysctls
	if _, err := atomicfile.ReadJSON(s.file(), &found); err != nil {
		return h, fmt.Errorf("reading the former sysctls of this machine: %w", err)
	}
	if found.Boot != h.Boot {
		return h, nil
	}
	for record, process := range found.Holders {
		if process.alive() || paths.Exists(record) {
			h.Holders[record] = process
		}
	}
	if found.Values != nil {
		h.Values = found.Values
	}
	return h, nil
}

func (s sysctls) save(h heldSysctls) error { return atomicfile.WriteJSON(s.file(), h, 0o600) }

// restore gives settings their former values. Forwarding stays on if it has been switched on for all interfaces since.
func (s sysctls) restore(values map[string]string) error {
	all, err := s.read(forwardAll)
	if err != nil {
		return err
	}
	var errs []error
	for name, value := range values {
		now, err := s.read(name)
		isForwarding, _ := filepath.Match(forwardEach, name)
		if err != nil || now == value || isForwarding && all == "1" {
			continue
		}
		if err := s.write(name, value); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s sysctls) file() string { return filepath.Join(s.dir, "sysctls.json") }

func (s sysctls) read(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(s.proc, name))
	return strings.TrimSpace(string(data)), err
}

func (s sysctls) write(name, value string) error {
	return os.WriteFile(filepath.Join(s.proc, name), []byte(value), 0o644)
}

// interfaces lists the forwarding switch of each interface.
func (s sysctls) interfaces() (names []string) {
	found, _ := filepath.Glob(filepath.Join(s.proc, forwardEach))
	for _, path := range found {
		if name := strings.TrimPrefix(path, s.proc+"/"); !slices.Contains(notInterfaces, name) {
			names = append(names, name)
		}
	}
	return names
}
