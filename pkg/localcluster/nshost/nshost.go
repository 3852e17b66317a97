// Package nshost makes hosts out of namespaces. Each has its own network, mounts, UTS, PIDs, IPC and cgroup root, a copy-on-write view of
// this machine's root file system, and bind mounts. A Wire connects hosts. Killing a host, or the process that booted it, kills all
// its processes at once, like a power cut.
//
// A program that uses this package calls Main first, because it is re-executed as the init of hosts.
package nshost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is a machine made of namespaces. Its fields are set before Boot and may be changed while it is down.
type Host struct {
	Name string
	// Dir is an existing directory for the host's own files. Prepare mounts a tmpfs below it, Discard removes it.
	Dir string
	// Cgroup is the host's root in every cgroup hierarchy, as a path below this machine's root.
	Cgroup string
	// Mounts are further mounts of the host.
	Mounts []Mount
	// Files are written at each boot: content by absolute path. They replace existing files and symbolic links.
	Files map[string]string
	// Wire connects the host's eth0. Without a wire the host has only loopback.
	Wire *Wire
	// Addrs are eth0's addresses with their prefix lengths. Gateways are those of the default routes, one per family.
	Addrs    []netip.Prefix
	Gateways []netip.Addr
	// Stderr is the standard error of the host's init. Nil means this process's own.
	Stderr *os.File

	init    *exec.Cmd
	release func() // of StartDurably
}

// Mount binds a file or directory of this machine into a host.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"` // absolute, on the host
	ReadOnly bool   `json:"readOnly,omitempty"`
	Optional bool   `json:"optional,omitempty"` // it is left out if there is no Source
	// Tmpfs mounts an empty tmpfs. Source is unused then.
	Tmpfs bool `json:"tmpfs,omitempty"`
}

// spec is the configuration of a host's init.
type spec struct {
	Name   string            `json:"name"`
	Root   string            `json:"root"`   // where to build the root file system
	Layers string            `json:"layers"` // where the copy-on-write layer is
	Mounts []Mount           `json:"mounts"`
	Files  map[string]string `json:"files"`
}

// layers is the directory of the copy-on-write layer, a tmpfs: an upper layer cannot be inside its lower layer, nor on an overlayfs.
func (h *Host) layers() string { return filepath.Join(h.Dir, "layers") }

// Upper is the directory with the files that were written to the host's root file system, outside its mounts.
func (h *Host) Upper() string { return filepath.Join(h.layers(), "upper") }

func (h *Host) root() string { return filepath.Join(h.Dir, "root") }

// Prepare makes the directories that survive a reboot of the host. It is called once, before the first Boot.
func (h *Host) Prepare() error {
	for _, dir := range []string{h.layers(), h.root()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", h.layers(), "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting the layer of host %s: %w", h.Name, err)
	}
	return nil
}

// Discard removes the host with its directory. It must be down.
func (h *Host) Discard() error {
	if err := unix.Unmount(h.layers(), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", h.layers(), err)
	}
	return os.RemoveAll(h.Dir)
}

// Up reports whether the host was booted and not killed.
func (h *Host) Up() bool { return h.init != nil }

// PID is the PID of the host's init on this machine, 0 while the host is down. /proc/PID/ns has the host's namespaces.
func (h *Host) PID() int {
	if h.init == nil {
		return 0
	}
	return h.init.Process.Pid
}

// Path returns the path on this machine of a file on the running host. Absolute symbolic links in it are resolved on this machine.
func (h *Host) Path(name string) string { return fmt.Sprintf("/proc/%d/root%s", h.PID(), name) }

// Boot starts the host. Its disks are unchanged since the last boot; /run, /tmp and /root are empty.
func (h *Host) Boot() error {
	if err := h.boot(); err != nil {
		h.Kill()
		return fmt.Errorf("booting host %s: %w", h.Name, err)
	}
	return nil
}

func (h *Host) boot() error {
	if err := makeCgroups(h.Cgroup); err != nil {
		return err
	}
	h.init = reexec(roleEnter)
	h.init.Stderr = os.Stderr
	if h.Stderr != nil {
		h.init.Stderr = h.Stderr
	}
	h.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
	}
	in, err := h.init.StdinPipe()
	if err != nil {
		return err
	}
	up, err := h.init.StdoutPipe()
	if err != nil {
		return err
	}
	if h.release, err = StartDurably(h.init); err != nil {
		h.init = nil
		return err
	}
	if err := joinCgroups(h.Cgroup, h.PID()); err != nil {
		return err
	}
	if err := h.connect(); err != nil {
		return err
	}
	// A write fails if the process has ended; awaitUp returns the reason.
	_, _ = in.Write([]byte("\n")) // enter waits for it, and leaves the rest for runInit
	_ = json.NewEncoder(in).Encode(spec{h.Name, h.root(), h.layers(), h.Mounts, h.Files})
	return awaitUp(up)
}

// awaitUp waits until the host's init reports that it is up, with an empty line. Any other line is an error.
func awaitUp(from io.Reader) error {
	said := make([]byte, 4096)
	n, err := from.Read(said)
	switch text := strings.TrimSpace(string(said[:n])); {
	case n == 0:
		return fmt.Errorf("its init ended: %w", err)
	case text != "":
		return errors.New(text)
	}
	return nil
}

// Kill kills all processes of the host at once, like a power cut. Its disks stay.
func (h *Host) Kill() {
	if h.init != nil && h.init.Process != nil {
		if h.Wire != nil {
			_ = h.Wire.Unplug(h.Name) // otherwise the host forwards packets until the kernel has removed its network namespace
		}
		killFrozen(h.Cgroup)
		_ = h.init.Process.Kill()
		_ = h.init.Wait()
		h.release()
	}
	h.init, h.release = nil, nil
	_ = RemoveCgroups(h.Cgroup) // what remains is used by the next boot
}

// Command prepares a command that runs on the host, in its namespaces and cgroups, with the environment of this process.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	return CommandAt(h.PID(), h.Cgroup, name, args...)
}

// CommandAt is like Command, for a host that another process booted. pid is the host's init, cgroup its root in every hierarchy.
func CommandAt(pid int, cgroup, name string, args ...string) *exec.Cmd {
	return reexec(roleExec, append([]string{strconv.Itoa(pid), cgroup, name}, args...)...)
}
