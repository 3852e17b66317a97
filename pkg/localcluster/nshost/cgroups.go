package nshost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// hierarchy is one mounted cgroup hierarchy of this machine.
type hierarchy struct {
	name    string // directory below /sys/fs/cgroup, "" if only cgroup v2 is mounted
	fstype  string
	options string
}

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies lists the cgroup file systems below /sys/fs/cgroup.
func hierarchies() (out []hierarchy) {
	mounts, _ := mountinfo.GetMounts(mountinfo.PrefixFilter(cgroupRoot)) // without a mount table there is none
	for _, m := range mounts {
		if m.FSType == "cgroup" || m.FSType == "cgroup2" {
			name := strings.TrimPrefix(strings.TrimPrefix(m.Mountpoint, cgroupRoot), "/")
			out = append(out, hierarchy{name, m.FSType, controllers(m.FSType, m.VFSOptions)})
		}
	}
	return out
}

// controllers returns the mount options that select a v1 hierarchy.
func controllers(fstype, options string) string {
	if fstype == "cgroup2" {
		return ""
	}
	general := []string{"rw", "ro", "relatime", "nosuid", "nodev", "noexec", "xattr"}
	return strings.Join(slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return slices.Contains(general, o)
	}), ",")
}

// dir returns a cgroup's directory.
func (h hierarchy) dir(name string) string { return filepath.Join(cgroupRoot, h.name, name) }

// makeCgroups makes a cgroup in every hierarchy, with all controllers of this machine.
func makeCgroups(name string) error {
	for _, h := range hierarchies() {
		parent := ""
		for _, elem := range strings.Split(name, "/") {
			if err := h.make(parent, filepath.Join(parent, elem)); err != nil {
				return fmt.Errorf("making cgroup %s: %w", name, err)
			}
			parent = filepath.Join(parent, elem)
		}
	}
	return nil
}

// make makes one cgroup below its parent.
func (h hierarchy) make(parent, name string) error {
	if h.fstype == "cgroup2" {
		h.enableControllers(parent)
	}
	if err := os.MkdirAll(h.dir(name), 0o755); err != nil || h.fstype == "cgroup2" {
		return err
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(h.dir(parent), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.dir(name), file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers enables all controllers of a cgroup for its children. Errors are ignored: a part that needs a missing controller
// reports it.
func (h hierarchy) enableControllers(name string) {
	all, err := os.ReadFile(filepath.Join(h.dir(name), "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, c := range strings.Fields(string(all)) {
		_ = os.WriteFile(filepath.Join(h.dir(name), "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
}

func joinCgroups(name string, pid int) error {
	for _, h := range hierarchies() {
		err := join(h.dir(name), pid)
		if errors.Is(err, unix.EBUSY) && h.fstype == "cgroup2" {
			// A cgroup with enabled controllers cannot hold processes; coracle on the host has made a child for them.
			err = join(filepath.Join(h.dir(name), initCgroup), pid)
		}
		if err != nil {
			return fmt.Errorf("joining cgroup: %w", err)
		}
	}
	return nil
}

// initCgroup is the child into which package host moves the processes of a cgroup namespace's root.
const initCgroup = "init"

// join moves a process into the cgroup with the given directory. PID 0 is the calling process.
func join(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// ownCgroups returns the directories of this process's cgroups.
func ownCgroups() (dirs []string, err error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) { // ID:CONTROLLERS:PATH
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, h := range hierarchies() {
			if len(fields) == 3 && fields[1] == h.options { // cgroup v2 has no controllers in either
				dirs = append(dirs, h.dir(fields[2]))
			}
		}
	}
	return dirs, nil
}

// Freeze freezes or thaws all processes of a host. A frozen host can be killed. It uses the freezer of cgroup v2, which needs no controller
// and is also available next to v1 hierarchies.
func (h *Host) Freeze(freeze bool) error {
	state := "0"
	if freeze {
		state = "1"
	}
	dir, err := h.Unified()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(state), 0o644)
	}
	if err != nil {
		return fmt.Errorf("freezing: %w", err)
	}
	return awaitFrozen(filepath.Join(dir, "cgroup.events"), state)
}

// Unified is the directory of the host's root in the hierarchy of cgroup v2, as this machine sees it.
func (h *Host) Unified() (string, error) {
	for _, hierarchy := range hierarchies() {
		if hierarchy.fstype == "cgroup2" {
			return hierarchy.dir(h.Cgroup), nil
		}
	}
	return "", errors.New("no cgroup v2 hierarchy is mounted")
}

// awaitFrozen waits until the kernel reports the state.
func awaitFrozen(events, state string) error {
	return retry(10*time.Second, func() error {
		data, err := os.ReadFile(events)
		if err == nil && !strings.Contains(string(data), "frozen "+state) {
			err = fmt.Errorf("the kernel says %s", data)
		}
		if err != nil {
			return fmt.Errorf("freezing: %w", err)
		}
		return nil
	})
}

// killFrozen kills all processes of a frozen host and thaws it: its init cannot end while its children are frozen.
func killFrozen(name string) {
	for _, hierarchy := range hierarchies() {
		file := filepath.Join(hierarchy.dir(name), "cgroup.freeze")
		state, err := os.ReadFile(file)
		if hierarchy.fstype != "cgroup2" || err != nil || strings.TrimSpace(string(state)) != "1" {
			continue
		}
		_ = os.WriteFile(filepath.Join(hierarchy.dir(name), "cgroup.kill"), []byte("1"), 0o644)
		_ = os.WriteFile(file, []byte("0"), 0o644)
	}
}

// JoinCgroup makes a cgroup in every hierarchy and moves a process of this machine into it.
func JoinCgroup(name string, pid int) error {
	if err := makeCgroups(name); err != nil {
		return err
	}
	return joinCgroups(name, pid)
}

// RemoveCgroups kills all processes in a cgroup and below it, and removes these cgroups from every hierarchy. It repeats that for five seconds
// at most, because killed processes take a moment to end.
func RemoveCgroups(name string) error {
	return Retry(func() error {
		var errs []error
		for _, h := range hierarchies() {
			for _, pid := range process.InCgroup(h.dir(name)) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			errs = append(errs, process.RemoveCgroup(h.dir(name)))
		}
		return errors.Join(errs...)
	})
}

// Retry repeats try for five seconds at most, until it succeeds: killed processes take a moment to release what they use.
func Retry(try func() error) error { return retry(5*time.Second, try) }

func retry(timeout time.Duration, try func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}
