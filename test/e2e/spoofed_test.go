package e2e

import (
	endian "encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/test/hosts"
)

// end is a pod's interface.
type end struct {
	pid int
	mac net.HardwareAddr
}

func (n *network) endOf(t *testing.T, pod string) (e end) {
	t.Helper()
	e.pid = n.processOf(t, pod)
	if err := hosts.On(e.pid, func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err == nil {
			e.mac = eth0.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// sendFrame sends an Ethernet frame from the network of the calling thread.
func sendFrame(frame []byte) error {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index})
}

// ip runs the program of this name in the network of a process.
func (e end) ip(t *testing.T, args ...string) string {
	t.Helper()
	var out []byte
	if err := hosts.On(e.pid, func() (err error) {
		out, err = exec.Command("ip", args...).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

// testSpoofedPorts has a pod send with the addresses of its neighbour on the node's bridge, and claim them by ARP and ND.
func (n *network) testSpoofedPorts(t *testing.T) {
	const node = "agent-1"
	web := strings.TrimSpace(n.api.Kubectl("get", "pods", "-l", "app=web", "--field-selector=spec.nodeName="+node, "-o", "name"))
	attacker, neighbour, victim := n.endOf(t, n.clients[node]), n.endOf(t, strings.TrimPrefix(web, "pod/")), n.endOf(t, n.pod(t, "lone"))
	n.loseTable(t, n.Agents[0], "bridge coracle-ports", n.clientIPs[node][0].String())
	for i, to := range n.podIPs(t, "lone")[node] {
		own, other := n.clientIPs[node][i], n.web[node][i]
		frame := func(mac net.HardwareAddr, from netip.Addr, text string) attempt {
			return attempt{attacker.pid, text, func() error { return sendFrame(forged(victim.mac, mac, from, to, text)) }}
		}
		neighbours := attempt{neighbour.pid, "the neighbour", func() error {
			return sendFrame(forged(victim.mac, neighbour.mac, other, to, "the neighbour"))
		}}
		claim := attempt{attacker.pid, "claims", func() error {
			for _, f := range claims(attacker.mac, victim.mac, own, other, to) {
				if err := sendFrame(f); err != nil {
					return err
				}
			}
			return nil
		}}
		victim.ip(t, "neigh", "replace", other.String(), "lladdr", neighbour.mac.String(), "dev", "eth0", "nud", "stale")
		got := heard(t, victim.pid, to, []attempt{
			frame(attacker.mac, other, "another IP"), frame(neighbour.mac, own, "another MAC"), frame(neighbour.mac, other, "both"), claim, neighbours, frame(attacker.mac, own, "itself"),
		})
		if want := []string{"the neighbour", "itself"}; !slices.Equal(got, want) {
			t.Errorf("%s got packets of %q, want %q", to, got, want)
		}
		if entry := victim.ip(t, "neigh", "show", other.String()); !strings.Contains(entry, neighbour.mac.String()) {
			t.Errorf("a pod takes another's address away: %s", entry)
		}
	}
	if addresses := victim.ip(t, "-6", "addr", "show", "dev", "eth0"); strings.Contains(addresses, "2001:db8:bad:") {
		t.Errorf("a pod advertises itself as a router: %s", addresses)
	}
}

// pod returns the name of an app's only pod.
func (n *network) pod(t *testing.T, app string) string {
	t.Helper()
	return strings.TrimSpace(n.api.Kubectl("get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[*].metadata.name}"))
}

// loseTable deletes an nft table of a host, and waits until it is there again with some text.
func (n *network) loseTable(t *testing.T, h *hosts.Host, table, text string) {
	t.Helper()
	list := append([]string{"list", "table"}, strings.Fields(table)...)
	if out, err := h.Try("nft", list...); err != nil {
		t.Errorf("there is no table %s: %s", table, out)
		return
	}
	h.Run("nft", append([]string{"delete"}, list[1:]...)...)
	hosts.Eventually(t, time.Minute, func() error {
		out, err := h.Try("nft", list...)
		if err != nil || !strings.Contains(out, text) {
			return fmt.Errorf("nft table %s lacks %s: %s", table, text, out)
		}
		return nil
	})
}

// claims are frames that tell a pod that another's address is at one's own MAC, and that one is a router.
func claims(mac, victim net.HardwareAddr, own, other, to netip.Addr) (frames [][]byte) {
	everyone := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if to.Is4() {
		for _, claimed := range []net.HardwareAddr{mac, {2, 0, 0, 0, 0, 9}} {
			frames = append(frames, slices.Concat(everyone, mac, []byte{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2}, claimed, other.AsSlice(), claimed, other.AsSlice()))
		}
		return frames
	}
	advertisement := slices.Concat([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, other.AsSlice(), []byte{2, 1}, mac)
	prefix := netip.MustParseAddr("2001:db8:bad::").AsSlice()
	router := slices.Concat([]byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, prefix)
	local := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
	for _, m := range []struct {
		from, to netip.Addr
		body     []byte
	}{{own, to, advertisement}, {other, to, advertisement}, {local, to, advertisement}, {local, netip.MustParseAddr("ff02::1"), router}} {
		addresses := append(m.from.AsSlice(), m.to.AsSlice()...)
		body := slices.Clone(m.body)
		endian.BigEndian.PutUint16(body[2:], checksum(slices.Concat(addresses, []byte{0, 0, 0, byte(len(body)), 0, 0, 0, unix.IPPROTO_ICMPV6}, body)))
		frames = append(frames, slices.Concat(victim, mac, []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_ICMPV6, 255}, addresses, body))
	}
	return frames
}

// testExemptPod: an administrator lets a namespace have pods that send with any address.
func (n *network) testExemptPod(t *testing.T) {
	const node = "agent-1"
	pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "router", "labels": {"app": "router"}, "annotations": {"coracle.io/allow-spoofing": "true"}},
"spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [{"name": "busybox", "image": "coracle.test/busybox:1", "command": ["sleep", "1000"]}]}}`, node)
	if out, err := n.api.Try("sh", "-c", "echo '"+pod+"' | "+hosts.Bin(t)+" kubectl apply -f - 2>&1"); err == nil || !strings.Contains(out, "kubectl annotate namespace default coracle.io/allow-spoofing=true") {
		t.Errorf("without permission: %v: %s", err, out)
	}
	n.api.Kubectl("annotate", "namespace", "default", "coracle.io/allow-spoofing=true")
	defer n.api.Kubectl("annotate", "namespace", "default", "coracle.io/allow-spoofing-")
	hosts.Eventually(t, time.Minute, func() error { // the API server hears of the namespace by its watch
		_, err := n.api.Try("sh", "-c", "echo '"+pod+"' | "+hosts.Bin(t)+" kubectl apply -f -")
		return err
	})
	defer n.api.Kubectl("delete", "pod", "router", "--now")
	n.api.Kubectl("wait", "pod", "router", "--for=condition=Ready", "--timeout=2m")
	router, victim := n.endOf(t, "router"), n.endOf(t, n.pod(t, "lone"))
	to := n.podIPs(t, "lone")[node][0]
	heard(t, victim.pid, to, []attempt{{router.pid, "a router", func() error {
		return sendFrame(forged(victim.mac, router.mac, n.web[node][0], to, "a router"))
	}}})
}
