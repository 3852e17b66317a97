package hosts

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// Wire is a switched network: a bridge in a network namespace of its own. Its gateway answers DNS queries for one external
// name and forwards nothing.
type Wire struct {
	Net     netip.Prefix
	Gateway netip.Addr

	t    testing.TB
	name string // of the network namespace
	wire *nshost.Wire
	last netip.Addr
}

// ExternalName is the only name that the gateway's DNS server knows, and ExternalIP its address.
const (
	ExternalName = "www.outside.test"
	ExternalIP   = "192.0.2.80"
)

// wires counts this process' wires: a network namespace's name must be unique on the machine.
var wires atomic.Int32

// NewWire makes a wire with the given network and a DNS server on its gateway, the network's first address.
func NewWire(t testing.TB, network netip.Prefix) *Wire {
	t.Helper()
	w := &Wire{
		Net: network, Gateway: network.Addr().Next(), t: t,
		name: fmt.Sprintf("wire-%d-%d", os.Getpid(), wires.Add(1)),
	}
	w.last = w.Gateway
	w.sh("ip netns add %s", w.name)
	t.Cleanup(func() { w.sh("ip netns del %s", w.name) })
	ns, err := os.Open("/run/netns/" + w.name)
	if err != nil {
		t.Fatal(err)
	}
	if w.wire, err = nshost.NewWire(ns, netip.PrefixFrom(w.Gateway, network.Bits())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.wire.Close() })
	w.startDNS()
	return w
}

func (w *Wire) nextIP() netip.Addr {
	w.last = w.last.Next()
	return w.last
}

// port is the name of a host's port on the bridge. It is at least three characters shorter than the kernel's limit.
func port(host string) string { return nshost.Port(host) }

// startDNS runs the gateway's name server in the wire's namespace.
func (w *Wire) startDNS() {
	cmd := exec.Command("ip", "netns", "exec", w.name, "/proc/self/exe")
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Args[4] = exe
	cmd.Env = append(os.Environ(), roleEnv+"="+roleDNS, "CORACLE_TEST_DNS="+netip.AddrPortFrom(w.Gateway, 53).String())
	cmd.Stderr = os.Stderr
	up, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		release()
	})
	if _, err := up.Read(make([]byte, 1)); err != nil {
		w.t.Fatalf("starting the wire's DNS server: %v", err)
	}
}

func (w *Wire) sh(format string, args ...any) {
	w.t.Helper()
	if err := w.try(format, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *Wire) try(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}
