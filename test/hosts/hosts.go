// Package hosts makes machines for tests out of namespaces: each has its own network, mounts, UTS, PIDs, IPC and
// cgroup root, a copy-on-write view of this machine's root file system, and a data directory on a real disk.
// Hosts hang on a Wire. Killing a host kills all that runs on it, shims included, as pulling the plug would.
package hosts

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Host is a machine made of namespaces.
type Host struct {
	Name string
	IP   netip.Addr // on the wire; invalid if the host has only loopback

	t      testing.TB
	wire   *Wire
	dir    string // scratch on this machine's disk
	cgroup string // our directory in every cgroup hierarchy
	init   *exec.Cmd
}

// Options say what a host is like.
type Options struct {
	IP netip.Addr // its address; the zero value is the wire's next free one
}

// New boots a host on the wire and removes it, with everything that runs on it, when the test ends.
// A nil wire makes a host that has only loopback.
func New(t testing.TB, wire *Wire, name string, opts Options) *Host {
	t.Helper()
	dir, err := os.MkdirTemp(scratch(), "host-"+name+"-")
	if err != nil {
		t.Fatalf("making a directory for host %s: %v", name, err)
	}
	h := &Host{Name: name, IP: opts.IP, t: t, wire: wire, dir: dir, cgroup: filepath.Base(dir)}
	for _, sub := range []string{"data", "kubelet", "layers", "root"} {
		h.must(os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	h.must(syscall.Mount("tmpfs", h.layers(), "tmpfs", 0, "mode=0755"))
	t.Cleanup(h.remove)
	if wire != nil && !h.IP.IsValid() {
		h.IP = wire.nextIP()
	}
	h.Boot()
	return h
}

// scratch is where hosts keep their disks: a real file system, because overlayfs does not stack on itself.
func scratch() string {
	if dir := os.Getenv("CORACLE_TEST_SCRATCH"); dir != "" {
		return dir
	}
	return os.TempDir()
}

// layers holds the copy-on-write layer, a tmpfs: an upper layer may not lie in its lower layer.
func (h *Host) layers() string { return filepath.Join(h.dir, "layers") }

// Data is the host's /var/lib/coracle as seen from this machine.
func (h *Host) Data(elem ...string) string {
	return filepath.Join(append([]string{h.dir, "data"}, elem...)...)
}

// PID is the host's init as this machine sees it; /proc/PID/ns holds the host's namespaces.
func (h *Host) PID() int { return h.init.Process.Pid }

// Path is a file on the host as seen from this machine.
func (h *Host) Path(name string) string {
	return fmt.Sprintf("/proc/%d/root%s", h.init.Process.Pid, name)
}

// Boot starts the host's init after New or Kill. What was on its disks is still there; /run is empty.
func (h *Host) Boot() {
	h.t.Helper()
	if err := makeCgroups(h.cgroup); err != nil {
		h.t.Fatalf("making cgroups of host %s: %v", h.Name, err)
	}
	h.init = exec.Command("/proc/self/exe")
	h.init.Env = append(os.Environ(), roleEnv+"="+roleEnter, "CORACLE_TEST_HOST="+h.Name, "CORACLE_TEST_HOSTDIR="+h.dir)
	h.init.Stderr = os.Stderr
	h.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	goOn, err := h.init.StdinPipe()
	h.must(err)
	up, err := h.init.StdoutPipe()
	h.must(err)
	startOnDurableThread(h.t, h.init)
	h.must(joinCgroups(h.cgroup, h.init.Process.Pid))
	if h.wire != nil {
		h.must(h.wire.attach(h))
	}
	_, err = goOn.Write([]byte("\n"))
	h.must(err)
	if _, err := up.Read(make([]byte, 1)); err != nil {
		h.t.Fatalf("booting host %s: its init ended: %v", h.Name, err)
	}
	if h.wire != nil {
		h.must(h.configure())
		h.must(os.WriteFile(h.Path("/etc/resolv.conf"), []byte("nameserver "+h.wire.Gateway.String()+"\n"), 0o644))
	}
}

// configure brings the host's interface up with its address and a default route over the wire.
func (h *Host) configure() error {
	family, bits := "-4", strconv.Itoa(h.wire.bits())
	gateway := h.wire.Gateway
	if h.IP.Is6() {
		family = "-6"
	}
	for _, args := range [][]string{
		{"ip", family, "addr", "add", h.IP.String() + "/" + bits, "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
		{"ip", family, "route", "add", "default", "via", gateway.String()},
	} {
		if out, err := h.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// SetIP gives a running host another address, as DHCP may.
func (h *Host) SetIP(ip netip.Addr) {
	h.t.Helper()
	h.Run("ip", "addr", "flush", "dev", "eth0")
	h.IP = ip
	h.must(h.configure())
}

// Kill ends the host at once, as pulling the plug does. Its disks stay.
func (h *Host) Kill() {
	if h.init == nil {
		return
	}
	_ = h.init.Process.Kill()
	_, _ = h.init.Process.Wait()
	h.init = nil
	removeCgroups(h.cgroup)
}

// For is the host for a subtest: what fails fails t. It must not be booted or killed.
func (h *Host) For(t testing.TB) *Host {
	sub := *h
	sub.t = t
	return &sub
}

// remove takes away the host and all it left.
func (h *Host) remove() {
	h.Kill()
	if err := syscall.Unmount(h.layers(), syscall.MNT_DETACH); err != nil {
		h.t.Logf("unmounting %s: %v", h.layers(), err)
	}
	if h.t.Failed() && os.Getenv("CORACLE_TEST_KEEP") != "" {
		h.t.Logf("kept %s", h.dir)
		return
	}
	if err := os.RemoveAll(h.dir); err != nil {
		h.t.Logf("removing %s: %v", h.dir, err)
	}
}

// Command prepares a command that runs on the host, in its namespaces and cgroups.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	pid := strconv.Itoa(h.init.Process.Pid)
	enter := []string{"-c", joinScript(h.cgroup) + `exec nsenter -t "$0" -m -n -u -p -i -C -- "$@"`, pid, name}
	cmd := exec.Command("sh", append(enter, args...)...)
	cmd.Dir = "/"
	// The settings of the test run are not the host's.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "CORACLE_") })
	return cmd
}

// Run runs a command on the host and returns its output; the test fails if the command does.
func (h *Host) Run(name string, args ...string) string {
	h.t.Helper()
	out, err := h.Try(name, args...)
	if err != nil {
		h.t.Fatalf("%s: %s %s: %v", h.Name, name, strings.Join(args, " "), err)
	}
	return out
}

// Try runs a command on the host and returns its standard output; the error carries its standard error.
func (h *Host) Try(name string, args ...string) (string, error) {
	cmd := h.Command(name, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
	}
	return string(out), err
}

func (h *Host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("host %s: %v", h.Name, err)
	}
}
