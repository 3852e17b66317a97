package reset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
)

// findCgroups lists the kubelet's cgroups in every hierarchy.
func findCgroups(_ context.Context, m *machine) ([]Item, error) {
	var items []Item
	for name, dirs := range m.cgroups() {
		items = append(items, Item{Kind: "cgroup", Name: name, Detail: quantity.Count(len(dirs), "hierarchy", "hierarchies"),
			remove: func(ctx context.Context) error {
				if strings.HasSuffix(name, ".slice") && underSystemd() {
					_ = systemctl(ctx, "stop", filepath.Base(name)) // it removes the cgroup, or we do
				}
				var errs []error
				for _, dir := range dirs {
					errs = append(errs, process.RemoveCgroup(dir))
				}
				return errors.Join(errs...)
			}})
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

// cgroups returns the directories of coracle's cgroups by cgroup. These are in the ledger and in containers' specifications.
func (m *machine) cgroups() map[string][]string {
	var names []string
	for _, e := range m.entries(ledger.Cgroup) {
		names = append(names, e.Name)
	}
	for _, b := range m.seen.containers {
		if b.cgroup != "" && !slices.Contains(names, b.cgroup) {
			names = append(names, b.cgroup)
		}
	}
	table, err := m.mountTable()
	if err != nil {
		return nil
	}
	out := map[string][]string{}
	for _, mount := range table {
		if mount.FSType != "cgroup" && mount.FSType != "cgroup2" {
			continue
		}
		for _, name := range names {
			dir := filepath.Join(mount.Mountpoint, name)
			if info, err := os.Stat(dir); err == nil && info.IsDir() && dir != mount.Mountpoint && !slices.Contains(out[name], dir) {
				out[name] = append(out[name], dir)
			}
		}
	}
	return out
}

// inOurCgroups returns the PIDs in the kubelet's cgroups, also of processes that are no descendants of a shim any more.
func (m *machine) inOurCgroups() map[int]bool {
	pids := map[int]bool{}
	for _, dirs := range m.cgroups() {
		for _, dir := range dirs {
			for _, pid := range process.InCgroup(dir) {
				pids[pid] = true
			}
		}
	}
	return pids
}

// findSettings lists the kernel settings that coracle changed and that still have its value. Those that route and bridge packets stay: Docker,
// libvirt and others that have found them on rely on them, and with IPv6 forwarding on, accept_ra keeps the machine's default route.
func findSettings(_ context.Context, m *machine) ([]Item, error) {
	var items []Item
	for _, e := range m.entries(ledger.Sysctl) {
		if strings.HasPrefix(e.Name, "net") && !strings.HasPrefix(e.Name, "net.netfilter.") {
			continue
		}
		file := ledger.SysctlFile(e.Name)
		if m.proc != "/proc" {
			file = strings.Replace(file, "/proc", m.proc, 1)
		}
		data, err := os.ReadFile(file)
		if err != nil || strings.Join(strings.Fields(string(data)), " ") != e.New {
			continue
		}
		items = append(items, Item{Kind: "sysctl", Name: e.Name, Detail: fmt.Sprintf("from %s back to %s", e.New, e.Old),
			remove: func(context.Context) error { return os.WriteFile(file, []byte(e.Old), 0o644) }})
	}
	return slices.Concat(items, m.profiles(), m.propagations()), nil
}

// profiles returns AppArmor's profiles that containerd has loaded. Another containerd that runs here loads them again with its next container.
func (m *machine) profiles() (items []Item) {
	for _, e := range m.entries(ledger.AppArmor) {
		if dir := m.host(ledger.AppArmorDir); ledger.ProfileLoaded(dir, e.Name) {
			items = append(items, Item{Kind: "AppArmor profile", Name: e.Name,
				remove: func(context.Context) error {
					return os.WriteFile(filepath.Join(dir, ".remove"), []byte(e.Name), 0o644)
				}})
		}
	}
	return items
}

// propagations returns one item for all mounts that coracle made shared.
func (m *machine) propagations() []Item {
	table, err := m.mountTable()
	if err != nil {
		return nil
	}
	shared := map[string]bool{}
	for _, mount := range table {
		shared[mount.Mountpoint] = strings.Contains(mount.Optional, "shared:") // the last mount at a mount point covers the others
	}
	var change []ledger.Entry
	for _, e := range m.entries(ledger.Propagation) {
		if shared[e.Name] && e.Old != e.New {
			change = append(change, e)
		}
	}
	if len(change) == 0 {
		return nil
	}
	return []Item{{Kind: "propagation", Name: "of " + quantity.Count(len(change), "mount", "mounts"), Detail: "shared with containers",
		remove: func(context.Context) error {
			var errs []error
			for _, e := range change {
				errs = append(errs, restorePropagation(e))
			}
			return errors.Join(errs...)
		}}}
}

// restorePropagation gives a mount the propagation that it had.
func restorePropagation(e ledger.Entry) error {
	flag := uintptr(unix.MS_PRIVATE)
	if e.Old == "slave" {
		flag = unix.MS_SLAVE
	}
	if err := unix.Mount("", e.Name, "", flag, ""); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	return nil
}
