package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

func TestStartTellsEverythingInOrder(t *testing.T) {
	slow := make(chan struct{})
	gives := func(v []Verdict) func(context.Context, *Machine) []Verdict {
		return func(context.Context, *Machine) []Verdict { return v }
	}
	rows := []row{
		{"slow", "", atStart, func(context.Context, *Machine) []Verdict { <-slow; return Failf("mend it", "first") }},
		{"warns", "", always | atStart, gives(Warnf("", "careful"))},
		{"fine", "", atStart, gives(Okf("well"))},
		{"skips", "", atStart, gives(Skipf("nothing"))},
		{"later", "", always, gives(Failf("", "not at the start"))},
		{"fast", "", atStart, func(context.Context, *Machine) []Verdict { close(slow); return Failf("", "second") }},
	}
	var warned []string
	warn := func(err error) { warned = append(warned, err.Error()) }
	if err := start(&Machine{}, rows, warn); err == nil || err.Error() != "first: mend it\nsecond" {
		t.Errorf("error %v", err)
	}
	if len(warned) != 1 || warned[0] != "careful" {
		t.Errorf("warnings %q", warned)
	}
	if err := start(&Machine{}, rows[1:5], warn); err != nil {
		t.Errorf("a warning became an error: %v", err)
	}
	alone := row{"alone", "", firstAtStart, gives(Failf("", "no root"))}
	if err := start(&Machine{}, append(rows, alone), warn); err == nil || err.Error() != "no root" {
		t.Errorf("error %v", err)
	}
}

// TestStartRows writes down what a start looks at, and that every probe can be asked for by people.
func TestStartRows(t *testing.T) {
	var first, then []string
	for _, r := range table {
		switch {
		case r.when&firstAtStart != 0:
			first = append(first, r.name)
		case r.when&atStart != 0:
			then = append(then, r.name)
		}
		if r.when&always != always {
			t.Errorf("%s is not run by both check and doctor", r.name)
		}
	}
	if got := strings.Join(first, " "); got != "root seccomp" {
		t.Errorf("first %s", got)
	}
	const want = "clock cgroups overlayfs links nftables bridge-netfilter kernel-defaults data-dir run-dir disk-space secret-files registries ports address"
	if got := strings.Join(then, " "); got != want {
		t.Errorf("then %s", got)
	}
}

// fine fails the test if there is a finding.
func fine(t *testing.T, got []Verdict) {
	t.Helper()
	if result, text := one(got); result != OK {
		t.Errorf("unexpected: %s", text)
	}
}

func TestCapabilities(t *testing.T) {
	fine(t, judgeCapabilities(0x1ffffffffff))
	expect(t, judgeCapabilities(0xa80425fb), Fail, "CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE;", "--privileged")
	expect(t, judgeCapabilities(0), Fail, "SYS_ADMIN")
}

func TestPivot(t *testing.T) {
	expect(t, judgePivot(unix.EPERM), Fail, "pivot_root", "seccomp=unconfined")
	fine(t, judgePivot(unix.ENOENT))
}

func TestDate(t *testing.T) {
	fine(t, judgeDate(firstRelease.Add(time.Hour)))
	expect(t, judgeDate(time.Unix(0, 0)), Warn, "1970-01-01", "set the clock")
}

func TestControllers(t *testing.T) {
	fine(t, judgeControllers([]string{"cpuset", "cpu", "io", "memory", "pids"}))
	expect(t, judgeControllers([]string{"cpuset", "cpu", "pids"}), Fail, "missing: memory;")
	v1 := v1Controllers([]*mountinfo.Info{{VFSOptions: "rw,cpu,cpuacct"}, {VFSOptions: "rw,memory"}, {VFSOptions: "rw,pids"}})
	expect(t, judgeControllers(v1), Fail, "missing: cpuset;")
}

func TestSpace(t *testing.T) {
	fs := func(free int64, inodes uint64) unix.Statfs_t {
		return unix.Statfs_t{Bavail: uint64(free) * mib / 4096, Bsize: 4096, Files: 1e6, Ffree: inodes}
	}
	fine(t, judgeFree("/d", fs(1000, 1e5), true))
	fine(t, judgeFree("/d", fs(200, 1e5), false))
	expect(t, judgeFree("/d", fs(200, 1e5), true), Fail, "/d has 200 MiB of space left and needs 512 MiB")
	expect(t, judgeFree("/d", fs(100, 1e5), false), Fail, "needs 128 MiB")
	expect(t, judgeFree("/d", fs(1000, 5), false), Fail, "5 inodes free")
}

// TestFullDisk: a full disk keeps coracle from its first start only. Later it has to start, or nothing could free space.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for name, options := range map[string]string{"space": "size=64m,nr_inodes=10000", "inodes": "size=1g,nr_inodes=1000"} {
		t.Run(name, func(t *testing.T) {
			m := &Machine{starting: true}
			m.Config.Dirs = paths.Dirs{Data: t.TempDir()}
			if err := unix.Mount("none", m.Config.Dirs.Data, "tmpfs", 0, options); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(m.Config.Dirs.Data, unix.MNT_DETACH) })
			expect(t, diskSpace(t.Context(), m), Fail, "and needs")
			if err := os.MkdirAll(m.Config.Dirs.NodePKI(), 0o755); err != nil {
				t.Fatal(err)
			}
			expect(t, diskSpace(t.Context(), m), Warn, "and needs")
			m.starting = false
			expect(t, diskSpace(t.Context(), m), Fail, "and needs")
		})
	}
}

func TestDirs(t *testing.T) {
	dir := t.TempDir()
	expect(t, judgeDir("data directory", filepath.Join(dir, "a/b"), "--data-dir", true), OK, "a/b does not exist yet and will be made in "+dir)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v (%v)", left, err)
	}
	for _, path := range []string{file, filepath.Join(file, "x")} {
		expect(t, judgeDir("data directory", path, "--data-dir", true), Fail, "is a file", "choose another with --data-dir")
	}
	for errno, text := range map[error]string{unix.EROFS: "read-only", unix.ENOSPC: "no space left", unix.EIO: "input/output error"} {
		if err := reason("/d", fmt.Errorf("making: %w", errno)); !strings.Contains(err.Error(), text) {
			t.Errorf("%v lacks %q", err, text)
		}
	}
}

func TestSecretFiles(t *testing.T) {
	m := &Machine{Config: config.Config{Dirs: paths.Dirs{Data: t.TempDir()}}}
	cfg := m.Config
	fine(t, secretFiles(t.Context(), m))
	for name, mode := range map[string]os.FileMode{
		filepath.Join(cfg.Dirs.PKI(), "ca.key"): 0o600, filepath.Join(cfg.Dirs.PKI(), "ca.crt"): 0o644,
		filepath.Join(cfg.Dirs.PKI(), "etcd", "open.key"): 0o644, cfg.Dirs.NodeConfig("kubelet.kubeconfig"): 0o640,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	found := secretFiles(t.Context(), m)
	expect(t, found, Fail, "etcd/open.key holds a secret", "(mode 0644)", "chmod 600 "+cfg.Dirs.NodeConfig("kubelet.kubeconfig"))
	if len(found) != 2 {
		t.Errorf("%d findings, want 2: %v", len(found), found)
	}
}

func TestPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).AddrPort()
	for _, addr := range []netip.Addr{taken.Addr(), netip.IPv6Unspecified()} {
		expect(t, port{"the API", netip.AddrPortFrom(addr, taken.Port()), "--x=PORT"}.try(t.Context(), true), Fail, "port "+strconv.Itoa(int(taken.Port())), "the API needs",
			fmt.Sprintf("process %d (%s", os.Getpid(), os.Args[0]), "with --x=PORT")
	}
	expect(t, port{"x", netip.MustParseAddrPort("192.0.2.1:1"), ""}.try(t.Context(), true), Fail, "no such address")
	l.Close()
	var found []Verdict
	for range 5 { // another program may take a port as soon as it is free
		if found = (port{"x", taken, ""}).try(t.Context(), true); found == nil {
			break
		}
		if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
			taken = l.Addr().(*net.TCPAddr).AddrPort()
			l.Close()
		}
	}
	fine(t, found)
}

// TestOwnPort: the front, which keeps the API's socket, is no other program; where coracle does not run, it is.
func TestOwnPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own := l.Addr().(*net.TCPAddr).AddrPort()
	m := &Machine{Config: config.Config{Role: config.Server, Disable: []string{"kube-proxy"}, Dirs: paths.Dirs{Run: t.TempDir()},
		Args: map[string][]string{"kubelet": {"port=0", "healthz-port=0"}}}}
	m.Config.API.Bind, m.Config.API.Port = own.Addr(), own.Port()
	expect(t, ports(t.Context(), m), Fail, "the Kubernetes API")
	m.Running = true
	expect(t, ports(t.Context(), m), Fail, "the Kubernetes API")
	if err := state.Write(m.Config.Dirs, state.Process{Name: state.Front, PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	fine(t, ports(t.Context(), m))
}

func TestListened(t *testing.T) {
	cfg := config.Config{Role: config.Server, Args: map[string][]string{
		"kubelet": {"v=2", "port=20250"}, "kube-proxy": {"metrics-bind-address=10.0.0.2:1", "healthz-bind-address=nonsense"},
	}}
	cfg.API.Port, cfg.API.Bind = 7443, netip.MustParseAddr("10.0.0.1")
	cfg.Node.BalancerPort, cfg.Node.IPs = 6444, []netip.Addr{netip.MustParseAddr("10.0.0.3")}
	got := func() string {
		var list []string
		for _, p := range listened(cfg) {
			list = append(list, p.addr.String())
		}
		return strings.Join(list, " ")
	}
	if want := "[::]:20250 127.0.0.1:6444 127.0.0.1:10248 10.0.0.2:1 127.0.0.1:10256 10.0.0.1:7443"; got() != want {
		t.Errorf("%s, want %s", got(), want)
	}
	cfg.Join.Joined = true
	if want := " 10.0.0.3:2380"; !strings.HasSuffix(got(), want) {
		t.Errorf("%s, want it to end with %s", got(), want)
	}
	cfg.Role, cfg.Disable = config.Agent, []string{"kube-proxy"}
	if want := "[::]:20250 127.0.0.1:6444 127.0.0.1:10248"; got() != want {
		t.Errorf("%s, want %s", got(), want)
	}
}

func TestListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1111 1 0 100 0 0 10 0
   1: 0100007F:192B 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 2222 1 0 20 4 30 10 -1
`
	if got := listening(table, 6443); len(got) != 1 || !got["1111"] {
		t.Errorf("%v", got)
	}
	if got := listening(table, 80); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestKernel tries the real things where it may.
func TestKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m := &Machine{starting: true}
	m.Config.Dirs.Data, m.Config.Network.Backend = t.TempDir(), config.VXLAN
	expect(t, overlayfs(t.Context(), m), OK, m.Config.Dirs.Data)
	if left, err := os.ReadDir(m.Config.Dirs.Data); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
	expect(t, links(t.Context(), m), OK, "bridge, veth, vxlan")
	m.Config.Network.Backend = config.WireGuard
	if got := links(t.Context(), m); got[0].Result == OK {
		expect(t, got, OK, "bridge, veth, wireguard")
	} else {
		expect(t, got, Fail, "no wireguard links, and one encrypts", "the module wireguard", "--flannel-backend=vxlan")
	}
	if _, err := net.InterfaceByName("b0"); err == nil {
		t.Error("the link is to be seen")
	}
	expect(t, ruleset(t.Context(), m), OK)
	for errno, want := range map[unix.Errno]string{unix.EOPNOTSUPP: "the kernel has no bridge links", unix.EPERM: "--privileged"} {
		expect(t, made("bridge", "connects pods", errno), Fail, want)
	}
	for _, err := range []error{unix.ENOBUFS, netlink.ErrDumpInterrupted} {
		expect(t, made("bridge", "connects pods", err), Warn, err.Error())
	}
	for errno, want := range map[unix.Errno]Result{unix.ENODEV: Warn, unix.EINVAL: Warn, unix.EIO: Fail} {
		expect(t, judgeOverlay("/d", errno), want, "overlay")
	}
}

// TestNoNamespaces: without namespaces a start fails; check skips what needs them, as another probe is about them.
func TestNoNamespaces(t *testing.T) {
	err := fmt.Errorf("%w: %w", errNamespaces, unix.EPERM)
	expect(t, (&Machine{starting: true}).withoutNamespaces(err), Fail, "making namespaces", "--privileged")
	expect(t, (&Machine{}).withoutNamespaces(err), Skipped, "see check namespaces")
	if v := (&Machine{}).withoutNamespaces(unix.EIO); v != nil {
		t.Errorf("%v", v)
	}
}

// TestApartLeavesTheFirstThread tries often enough to come by the first thread, which /proc tells the process by.
func TestApartLeavesTheFirstThread(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := inNamespaces(unix.CLONE_NEWNET, func() error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if after, _ := os.Readlink("/proc/self/ns/net"); after != before {
		t.Errorf("the process went from %s to %s", before, after)
	}
}
