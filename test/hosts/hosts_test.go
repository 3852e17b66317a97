package hosts

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestTwoHostsOnAWire(t *testing.T) {
	slots.Take(t)
	if os.Geteuid() != 0 {
		t.Skip("hosts are made of namespaces, which needs root")
	}
	wire := NewWire(t, netip.MustParsePrefix("172.30.9.0/24"))
	a, b := New(t, wire, "a", Options{}), New(t, wire, "b", Options{})

	if got := strings.TrimSpace(a.Run("hostname")); got != "a" {
		t.Errorf("hostname is %q", got)
	}
	a.Run("busybox", "ping", "-c1", "-W10", b.IP.String())
	a.Run("sh", "-c", "echo hello > /etc/only-on-a")
	if _, err := os.Stat("/etc/only-on-a"); err == nil {
		t.Error("a file made on a host shows up on this machine")
	}
	if _, err := b.Try("cat", "/etc/only-on-a"); err == nil {
		t.Error("a file made on one host shows up on the other")
	}
	if got := a.Run("cat", "/proc/self/cgroup"); strings.Contains(got, "..") || strings.Contains(got, "host-a") {
		t.Errorf("a command runs outside the host's cgroups:\n%s", got)
	}
	a.Kill()
	a.Boot()
	if got := a.Run("cat", "/etc/only-on-a"); got != "hello\n" {
		t.Errorf("after a reboot the host's file holds %q", got)
	}
}
