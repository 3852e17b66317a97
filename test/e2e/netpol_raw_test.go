package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testFirstPacket: pods whose first action is a forbidden connection. Without their policy it succeeds. The machine's
// bridge settings do not affect packets between pods of a node.
func (p *policies) testFirstPacket(t *testing.T) {
	for _, h := range p.Hosts() {
		h.Run("sh", "-c", "echo 0 | tee /proc/sys/net/bridge/bridge-nf-call-iptables > /proc/sys/net/bridge/bridge-nf-call-ip6tables")
		t.Cleanup(func() {
			h.Run("sh", "-c", "echo 1 | tee /proc/sys/net/bridge/bridge-nf-call-iptables > /proc/sys/net/bridge/bridge-nf-call-ip6tables")
		})
	}
	t.Run("without a policy", func(t *testing.T) { p.expectEager(t, "LEAK", "denied") })
	p.with(t, policyOf("z", "p", `{podSelector: {matchLabels: {app: eager}}, policyTypes: [Egress]}`))
	p.expectEager(t, "denied", "LEAK")
}

// expectEager starts twelve such pods, and fails unless all of them report the expected result.
func (p *policies) expectEager(t *testing.T, should, shouldNot string) {
	t.Helper()
	api := p.api.For(t)
	api.Apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: eager, namespace: z}
spec:
  replicas: 12
  selector: {matchLabels: {app: eager}}
  template:
    metadata: {labels: {app: eager}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: %s
        command: [sh, -c, "/agnhost connect %s:80 --timeout=1s && echo LEAK || echo denied; exec sleep 1000"]
`, agnhost, p.pods["z/c"].ips[0]))
	t.Cleanup(func() {
		api.Kubectl("delete", "deployment", "-n", "z", "eager")
		api.Kubectl("wait", "-n", "z", "pods", "-l", "app=eager", "--for=delete", "--timeout=3m")
	})
	api.Kubectl("rollout", "status", "-n", "z", "deployment/eager", "--timeout=3m")
	hosts.Eventually(t, time.Minute, func() error {
		out := api.Kubectl("logs", "-n", "z", "-l", "app=eager", "--tail=-1", "--max-log-requests=20")
		if strings.Contains(out, shouldNot) {
			t.Fatalf("a pod says %s, want %s of all:\n%s", shouldNot, should, out)
		}
		if n := strings.Count(out, should); n != 12 {
			return fmt.Errorf("%d of 12 pods have tried:\n%s", n, out)
		}
		return nil
	})
}

// testRawFrames: a pod that may send raw packets sends IP to the bridge in frames with another type.
func (p *policies) testRawFrames(t *testing.T) {
	const q, ad = 0x8100, 0x88a8
	from, to := p.pods["z/c"], netip.MustParseAddr(p.pods["x/a"].ips[0])
	frames := map[string][]uint16{"plain": nil, "a tag": {q}, "a provider's tag": {ad}, "two tags": {q, q}, "two kinds of tags": {ad, q}, "three tags": {q, q, q}}
	if err := from.exchange(to, nil); err != nil {
		t.Fatalf("without policies: %v", err)
	}
	p.with(t, policyOf("x", "p", `{podSelector: {}}`))
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	for name, tags := range frames {
		if err := from.exchange(to, tags); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a frame got past the policy, or could not be sent: %v", name, err)
		}
	}
}

// exchange sends a UDP packet to port 80 of another pod of the node, in a frame with tags of an unused VLAN, and waits
// for the answer for a moment.
func (p policyPod) exchange(to netip.Addr, tags []uint16) error {
	return hosts.On(p.pid, func() error {
		own := netip.MustParseAddr(p.ips[0])
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: own.AsSlice()})
		if err != nil {
			return err
		}
		defer conn.Close()
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		port := conn.LocalAddr().(*net.UDPAddr).Port
		if err := unix.Sendto(fd, udpFrame(own, to, uint16(port), tags), 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index}); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 64))
		return err
	})
}

// udpFrame is an Ethernet frame between pods; their MAC addresses are derived from their IP addresses.
func udpFrame(from, to netip.Addr, port uint16, tags []uint16) []byte {
	word := func(to []byte, w uint16) []byte { return append(to, byte(w>>8), byte(w)) }
	mac := func(frame []byte, of netip.Addr) []byte { return append(append(frame, 0x0a, 0x58), of.AsSlice()...) }
	frame := mac(mac(nil, to), from)
	for _, tag := range tags {
		frame = word(word(frame, tag), 0)
	}
	frame = word(frame, unix.ETH_P_IP)
	const body = "hello"
	size := uint16(8 + len(body))
	header := word(word([]byte{0x45, 0}, 20+size), 1)
	header = append(header, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
	header = append(append(header, from.AsSlice()...), to.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(header[i])<<8 + uint32(header[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	header[10], header[11] = ^byte(sum>>8), ^byte(sum)
	packet := word(word(word(word(append(frame, header...), port), 80), size), 0) // without a checksum
	return append(packet, body...)
}
