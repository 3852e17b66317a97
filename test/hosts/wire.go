package hosts

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
)

// Wire is a switched network of its own: a bridge in a network namespace that nothing else is in. Its gateway
// answers DNS for a few external names and leads nowhere.
type Wire struct {
	Net     netip.Prefix
	Gateway netip.Addr

	t    testing.TB
	name string // of the network namespace
	last netip.Addr
}

// ExternalName and ExternalIP are what the gateway's DNS server knows of the world outside.
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
	w.sh("ip -n %s link set lo up", w.name)
	w.sh("ip -n %s link add br0 address %s type bridge", w.name, mac("the gateway"))
	nodad := ""
	if w.Gateway.Is6() {
		nodad = "nodad"
	}
	w.sh("ip -n %s addr add %s/%d dev br0 %s", w.name, w.Gateway, w.bits(), nodad)
	w.sh("ip -n %s link set br0 up", w.name)
	w.startDNS()
	return w
}

func (w *Wire) bits() int { return w.Net.Bits() }

func (w *Wire) nextIP() netip.Addr {
	w.last = w.last.Next()
	return w.last
}

// attach puts one end of a new cable into the bridge and the other into the host, as eth0. The cable of the host's
// life before, which the kernel takes away a little after that, goes first. A host keeps its MAC address, as real ones do:
// its neighbours remember it.
func (w *Wire) attach(h *Host) error {
	return w.try("ip -n %[1]s link del %[2]s 2>/dev/null; ip -n %[1]s link add %[2]s type veth peer name eth0 address %[4]s netns %[3]d &&"+
		" ip -n %[1]s link set %[2]s master br0 up", w.name, port(h.Name), h.init.Process.Pid, mac(h.Name))
}

// mac is the address of a host's network card.
func mac(host string) string {
	sum := sha256.Sum256([]byte(host))
	return net.HardwareAddr(append([]byte{0x02}, sum[:5]...)).String()
}

// port is what the bridge's end of a host's cable is called. It leaves room for a few more letters.
func port(host string) string {
	if len(host) <= 10 {
		return "p-" + host
	}
	return fmt.Sprintf("p-%x", sha256.Sum256([]byte(host)))[:10]
}

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
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	up, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	startOnDurableThread(w.t, cmd)
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
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

// On runs f on a thread inside the network namespace of the process pid, e.g. to dial from there.
func On(pid int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is not unlocked, so the runtime ends it instead of reusing it in the wrong namespace.
		runtime.LockOSThread()
		result <- enterNet(pid, f)
	}()
	return <-result
}
