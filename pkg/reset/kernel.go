package reset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/ledger"
)

// findCgroups lists the kubelet's cgroups in every hierarchy.
func findCgroups(_ context.Context, m *machine) ([]Item, error) {
	var items []Item
	for name, dirs := range m.cgroups() {
		items = append(items, Item{Kind: "cgroup", Name: name, Detail: plural(len(dirs), "hierarchy", "hierarchies"),
			remove: func(ctx context.Context) error {
				if strings.HasSuffix(name, ".slice") && underSystemd() {
					_ = systemctl(ctx, "stop", filepath.Base(name)) // it removes the cgroup, or we do
				}
				var errs []error
				for _, dir := range dirs {
					errs = append(errs, removeCgroup(dir))
				}
				return errors.Join(errs...)
			}})
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

// cgroups are the directories of our cgroups by name. Names come from the ledger and from the containers.
func (m *machine) cgroups() map[string][]string {
	var names []string
	for _, e := range m.entries(ledger.Cgroup) {
		names = append(names, e.Name)
	}
	for _, b := range m.seen.bundles {
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
		if mount.fs != "cgroup" && mount.fs != "cgroup2" {
			continue
		}
		for _, name := range names {
			dir := filepath.Join(mount.point, name)
			if info, err := os.Stat(dir); err == nil && info.IsDir() && dir != mount.point && !slices.Contains(out[name], dir) {
				out[name] = append(out[name], dir)
			}
		}
	}
	return out
}

// removeCgroup removes a cgroup and all below it. They hold no processes any more.
func removeCgroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return removed(err)
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := removed(unix.Rmdir(d)); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

// inOurCgroups lists the processes in the kubelet's cgroups: also those that left their shim's family.
func (m *machine) inOurCgroups() (pids []int) {
	for _, dirs := range m.cgroups() {
		for _, dir := range dirs {
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.Name() != "cgroup.procs" {
					return nil
				}
				data, _ := os.ReadFile(path)
				for _, field := range strings.Fields(string(data)) {
					if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(pids, pid) {
						pids = append(pids, pid)
					}
				}
				return nil
			})
		}
	}
	slices.Sort(pids)
	return pids
}

// findSettings lists the kernel settings that coracle changed and nobody since.
func findSettings(_ context.Context, m *machine) ([]Item, error) {
	var items []Item
	for _, e := range m.entries(ledger.Sysctl) {
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
	for _, e := range m.entries(ledger.Propagation) {
		if e.Old != "private" || m.propagation(e.Name) != "shared" {
			continue
		}
		items = append(items, Item{Kind: "propagation", Name: e.Name, Detail: "from shared back to private",
			remove: func(context.Context) error { return unix.Mount("", e.Name, "", unix.MS_PRIVATE, "") }})
	}
	return items, nil
}

// propagation is that of the topmost mount at a mount point: "shared" or "private".
func (m *machine) propagation(point string) string {
	data, err := os.ReadFile(filepath.Join(m.proc, "self", "mountinfo"))
	if err != nil {
		return ""
	}
	found := ""
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 7 || unescape(fields[4]) != point {
			continue
		}
		found = "private"
		if dash := slices.Index(fields, "-"); dash >= 0 && slices.ContainsFunc(fields[6:dash], func(f string) bool {
			return strings.HasPrefix(f, "shared:")
		}) {
			found = "shared"
		}
	}
	return found
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
