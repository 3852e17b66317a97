// Package hosts makes machines for tests out of namespaces: each has its own network, mounts, UTS, PIDs, IPC and
// cgroup root, a copy-on-write view of this machine's root file system, and a data directory on a real disk.
// Hosts are connected to a Wire. Killing a host kills all processes on it, shims included, as a power cut would.
package hosts

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
	"github.com/coracle-dev/coracle/test/slots"
)

// Host is a machine made of namespaces.
type Host struct {
	Name string
	IP   netip.Addr // on the wire; invalid if the host has only loopback

	t    testing.TB
	wire *Wire
	dir  string // scratch on this machine's disk
	vm   *nshost.Host

	piped bool
}

// Options are the properties of a host.
type Options struct {
	IP netip.Addr // its address; the zero value is the wire's next free one
	// OwnPayload gives the host its own directory for the unpacked payload, as a real machine has. The other hosts of
	// a test process share one directory, which the first of them fills.
	OwnPayload bool
	// Disks are further directories of the host on a real disk; they are empty at first.
	Disks []string
	// Piped gives coracle a pipe for its output, for StopReading.
	Piped bool
}

// New boots a host on the wire and removes it, with everything that runs on it, when the test ends.
// Without a wire the host has only loopback.
func New(t testing.TB, wire *Wire, name string, opts Options) *Host {
	t.Helper()
	slots.Require(t)
	dir, err := os.MkdirTemp(scratch(), "host-"+name+"-")
	if err != nil {
		t.Fatalf("making a directory for host %s: %v", name, err)
	}
	h := &Host{Name: name, IP: opts.IP, t: t, wire: wire, dir: dir, piped: opts.Piped}
	h.vm = &nshost.Host{Name: name, Dir: dir, Cgroup: filepath.Base(dir), Mounts: h.mounts(opts)}
	for _, m := range h.vm.Mounts {
		h.must(os.MkdirAll(m.Source, 0o755))
	}
	h.must(h.vm.Prepare())
	t.Cleanup(h.remove)
	if wire != nil && !h.IP.IsValid() {
		h.IP = wire.nextIP()
	}
	h.Boot()
	return h
}

// mounts are the host's disks and the directory of the executable under test.
func (h *Host) mounts(opts Options) []nshost.Mount {
	mounts := []nshost.Mount{
		{Source: filepath.Join(h.dir, "data"), Target: "/var/lib/coracle"},
		{Source: filepath.Join(h.dir, "kubelet"), Target: "/var/lib/kubelet"},
	}
	for i, disk := range opts.Disks {
		mounts = append(mounts, nshost.Mount{Source: filepath.Join(h.dir, fmt.Sprint("disk", i)), Target: disk})
	}
	if bin := os.Getenv("CORACLE_BIN"); bin != "" {
		if !opts.OwnPayload {
			mounts = append(mounts, nshost.Mount{Source: payloadDir(), Target: "/var/lib/coracle/data"})
		}
		mounts = append(mounts, nshost.Mount{Source: filepath.Dir(bin), Target: filepath.Dir(bin)})
	}
	return mounts
}

// payloadDir is the directory for the unpacked payload that the hosts of this process share. Main removes it.
func payloadDir() string { return filepath.Join(scratch(), fmt.Sprintf("payload-%d", os.Getpid())) }

// scratch is the directory for the hosts' disks. It must be on a real file system, because overlayfs does not stack on
// itself.
func scratch() string {
	if dir := os.Getenv("CORACLE_TEST_SCRATCH"); dir != "" {
		return dir
	}
	return os.TempDir()
}

// Data is the host's /var/lib/coracle as seen from this machine.
func (h *Host) Data(elem ...string) string {
	return filepath.Join(append([]string{h.dir, "data"}, elem...)...)
}

// PID is the host's init as this machine sees it; /proc/PID/ns holds the host's namespaces.
func (h *Host) PID() int { return h.vm.PID() }

// Cgroup is the directory of the host's cgroup v2 as this machine sees it: the processes in it and below it are the host's.
func (h *Host) Cgroup() string {
	h.t.Helper()
	dir, err := h.vm.Unified()
	h.must(err)
	return dir
}

// Path is a file on the host as seen from this machine.
func (h *Host) Path(name string) string { return h.vm.Path(name) }

// Boot starts the host's init after New or Kill. The disks keep their content; /run is empty.
func (h *Host) Boot() {
	h.t.Helper()
	h.connect()
	h.must(h.vm.Boot())
}

// connect sets the host's network configuration.
func (h *Host) connect() {
	if h.wire == nil {
		return
	}
	h.vm.Wire = h.wire.wire
	h.vm.Addrs = []netip.Prefix{netip.PrefixFrom(h.IP, h.wire.Net.Bits())}
	h.vm.Gateways = []netip.Addr{h.wire.Gateway}
	h.vm.Files = map[string]string{"/etc/resolv.conf": "nameserver " + h.wire.Gateway.String() + "\n"}
}

// SetIP changes the address of a running host, as DHCP may.
func (h *Host) SetIP(ip netip.Addr) {
	h.t.Helper()
	h.IP = ip
	h.connect()
	h.must(h.vm.Configure())
}

// LoseIP removes the address and the default route of a running host, as the end of a DHCP lease does.
func (h *Host) LoseIP() {
	h.t.Helper()
	h.connect()
	h.vm.Addrs, h.vm.Gateways = nil, nil
	h.must(h.vm.Configure())
}

// Kill ends the host at once, as a power cut does. Its disks stay.
func (h *Host) Kill() { h.vm.Kill() }

// For is the host for a subtest: its methods fail t. It must not be booted or killed.
func (h *Host) For(t testing.TB) *Host {
	sub := *h
	sub.t = t
	return &sub
}

// remove removes the host and its files.
func (h *Host) remove() {
	h.Kill()
	if h.t.Failed() && os.Getenv("CORACLE_TEST_KEEP") != "" {
		h.t.Logf("kept %s", h.dir)
		return
	}
	if err := h.vm.Discard(); err != nil {
		h.t.Logf("removing host %s: %v", h.Name, err)
	}
}

// Command prepares a command that runs on the host, in its namespaces and cgroups.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	cmd := h.vm.Command(name, args...)
	if bin := os.Getenv("CORACLE_BIN"); bin != "" {
		cmd.Path = bin // it enters the host as well as this program, and starts in a fifth of the time
	}
	// The environment of the test run must not configure the coracle on the host.
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
