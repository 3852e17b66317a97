package preflight

import (
	"errors"
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

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestRunTellsEverythingInOrder(t *testing.T) {
	slow := make(chan struct{})
	table := []check{
		{"slow", func(config.Config) error { <-slow; return errors.New("first") }},
		{"warns", func(config.Config) error { return Warning{errors.New("careful")} }},
		{"fine", func(config.Config) error { return nil }},
		{"fast", func(config.Config) error { close(slow); return errors.New("second") }},
	}
	var warned []string
	err := run(config.Config{}, table, func(err error) { warned = append(warned, err.Error()) })
	if err == nil || err.Error() != "first\nsecond" {
		t.Errorf("error %v", err)
	}
	if len(warned) != 1 || warned[0] != "careful" {
		t.Errorf("warnings %q", warned)
	}
	if err := run(config.Config{}, table[1:3], func(error) {}); err != nil {
		t.Errorf("a warning became an error: %v", err)
	}
}

// expect checks that an error has all the texts, or that there is none if there are no texts.
func expect(t *testing.T, err error, texts ...string) {
	t.Helper()
	if (err == nil) != (len(texts) == 0) {
		t.Errorf("error %v, want %q", err, texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

func TestCapabilities(t *testing.T) {
	expect(t, missingCapabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"))
	expect(t, missingCapabilities("CapEff:\t00000000a80425fb\n"), "CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE:", "--privileged")
	expect(t, missingCapabilities(""), "SYS_ADMIN")
}

func TestClock(t *testing.T) {
	expect(t, clockAt(written.Add(time.Hour)))
	err := clockAt(time.Unix(0, 0))
	expect(t, err, "1970-01-01", "set it")
	if !errors.As(err, new(Warning)) {
		t.Error("not a warning")
	}
}

func TestControllers(t *testing.T) {
	expect(t, missingControllers([]string{"cpuset", "cpu", "io", "memory", "pids"}))
	expect(t, missingControllers([]string{"cpuset", "cpu", "pids"}), "missing: memory:")
	v1 := v1Controllers(`cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
`)
	expect(t, missingControllers(v1), "missing: cpuset:")
}

func TestSpace(t *testing.T) {
	fs := func(free int64, inodes uint64) unix.Statfs_t {
		return unix.Statfs_t{Bavail: uint64(free) * mib / 4096, Bsize: 4096, Files: 1e6, Ffree: inodes}
	}
	expect(t, space("/d", fs(1000, 1e5), true))
	expect(t, space("/d", fs(200, 1e5), false))
	expect(t, space("/d", fs(200, 1e5), true), "/d has 200 MiB of space left and needs 512 MiB")
	expect(t, space("/d", fs(100, 1e5), false), "needs 128 MiB")
	expect(t, space("/d", fs(1000, 5), false), "5 inodes free")
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	expect(t, writable("data directory", filepath.Join(dir, "a/b"), "--data-dir"))
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, writable("data directory", filepath.Join(file, "x"), "--data-dir"), "is a file", "choose another with --data-dir")
	for errno, text := range map[error]string{unix.EROFS: "read-only", unix.ENOSPC: "no space left", unix.EIO: "input/output error"} {
		expect(t, reason("/d", fmt.Errorf("making: %w", errno)), text)
	}
}

func TestSecretFiles(t *testing.T) {
	cfg := config.Config{Dirs: paths.Dirs{Data: t.TempDir()}}
	expect(t, SecretFiles(cfg))
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
	err := SecretFiles(cfg)
	expect(t, err, "etcd/open.key holds a secret", "(mode 0644)", "chmod 600 "+cfg.Dirs.NodeConfig("kubelet.kubeconfig"))
	if n := strings.Count(err.Error(), "\n") + 1; n != 2 {
		t.Errorf("%d errors, want 2: %v", n, err)
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
		err := try(port{"the API", netip.AddrPortFrom(addr, taken.Port()), "--x=PORT"})
		expect(t, err, "port "+strconv.Itoa(int(taken.Port())), "the API needs",
			fmt.Sprintf("process %d (%s", os.Getpid(), os.Args[0]), "with --x=PORT")
	}
	expect(t, try(port{"x", netip.MustParseAddrPort("192.0.2.1:1"), ""}), "no such address")
	l.Close()
	for range 5 { // somebody else may take a port as soon as it is free
		if err = try(port{"x", taken, ""}); err == nil {
			break
		}
		if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
			taken = l.Addr().(*net.TCPAddr).AddrPort()
			l.Close()
		}
	}
	expect(t, err)
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

func TestAnswered(t *testing.T) {
	answer := func(kind byte, code int32) []byte {
		b := make([]byte, 20)
		b[4] = kind
		b[16], b[17], b[18], b[19] = byte(code), byte(code>>8), byte(code>>16), byte(code>>24)
		return b
	}
	expect(t, answered(nil))
	expect(t, answered(answer(unix.NLMSG_ERROR, 0)))
	expect(t, answered(answer(16, -95)))
	if err := answered(answer(unix.NLMSG_ERROR, -int32(unix.EOPNOTSUPP))); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v", err)
	}
}

// TestKernel tries the real things where it may.
func TestKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	expect(t, Apart(unix.CLONE_NEWNS, func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		return overlay(dir)
	}))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
	expect(t, Apart(unix.CLONE_NEWNET, func() error {
		if err := newLink("nonsense", "x"); !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("a nonsense link: %w", err)
		}
		return newLink("bridge", "x")
	}))
	if _, err := net.InterfaceByName("x"); err == nil {
		t.Error("the link is to be seen")
	}
	expect(t, Apart(unix.CLONE_NEWNET, nftables))
	var cfg config.Config
	cfg.Network.Backend = config.VXLAN
	expect(t, network(cfg))
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
			all.Go(func() { expect(t, Apart(unix.CLONE_NEWNET, func() error { return nil })) })
		}
		all.Wait()
	}
	if after, _ := os.Readlink("/proc/self/ns/net"); after != before {
		t.Errorf("the process went from %s to %s", before, after)
	}
}
