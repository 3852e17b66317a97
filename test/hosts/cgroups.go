package hosts

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hierarchy is one mounted cgroup hierarchy of this machine.
type hierarchy struct {
	name    string // directory below /sys/fs/cgroup, "" for a pure v2 machine
	fstype  string
	options string
}

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies lists what is mounted below /sys/fs/cgroup.
func hierarchies() []hierarchy {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []hierarchy
	for s := bufio.NewScanner(f); s.Scan(); {
		field := strings.Fields(s.Text())
		if len(field) < 4 || !strings.HasPrefix(field[1], cgroupRoot) || !strings.HasPrefix(field[2], "cgroup") {
			continue
		}
		out = append(out, hierarchy{
			name:    strings.TrimPrefix(strings.TrimPrefix(field[1], cgroupRoot), "/"),
			fstype:  field[2],
			options: controllers(field[2], field[3]),
		})
	}
	return out
}

// controllers keeps of the mount options what selects a v1 hierarchy.
func controllers(fstype, options string) string {
	if fstype == "cgroup2" {
		return ""
	}
	general := []string{"rw", "ro", "relatime", "nosuid", "nodev", "noexec", "xattr"}
	return strings.Join(slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return slices.Contains(general, o)
	}), ",")
}

// makeCgroups makes a host's root cgroup in every hierarchy.
func makeCgroups(name string) error {
	for _, h := range hierarchies() {
		dir := filepath.Join(cgroupRoot, h.name, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(cgroupRoot, h.name, file))
			if h.fstype == "cgroup2" || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func joinCgroups(name string, pid int) error {
	for _, h := range hierarchies() {
		procs := filepath.Join(cgroupRoot, h.name, name, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("joining cgroup: %w", err)
		}
	}
	return nil
}

// joinScript is shell text that puts the shell into the host's cgroups.
func joinScript(name string) string {
	var b strings.Builder
	for _, h := range hierarchies() {
		fmt.Fprintf(&b, "echo $$ > %s || exit 125; ", filepath.Join(cgroupRoot, h.name, name, "cgroup.procs"))
	}
	return b.String()
}

// removeCgroups removes a host's cgroups, deepest first. Processes that were killed may hold them for a moment.
func removeCgroups(name string) {
	for _, h := range hierarchies() {
		root := filepath.Join(cgroupRoot, h.name, name)
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var dirs []string
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			slices.Reverse(dirs)
			var err error
			for _, dir := range dirs {
				err = errors.Join(err, os.Remove(dir))
			}
			if err == nil || time.Now().After(deadline) {
				break
			}
		}
	}
}
