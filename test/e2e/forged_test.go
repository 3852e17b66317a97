package e2e

import (
	endian "encoding/binary"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/test/hosts"
)

// forgedPort is where the victims of forged packets listen.
const forgedPort = 9999

// testForgedVXLAN sends packets of pods to a pod of agent-2 that are not what their senders may send. The last one may be sent.
func (n *network) testForgedVXLAN(t *testing.T) {
	const victim, node = "agent-2", "agent-1"
	victimPID, clientPID := n.processOf(t, n.clients[victim]), n.processOf(t, n.clients[node])
	server := n.Servers[0].Name
	n.loseTable(t, n.Agents[1], "inet coracle-wire", n.nodes[node][0].String())
	for i, to := range n.clientIPs[victim] {
		own, neighbour, foreign := n.clientIPs[node][i], n.web[node][i], n.web[server][i]
		vtep := n.vtep(t, victim, to.Is6())
		vxlan := func(from netip.Addr, text string) func() error {
			packet := append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, forged(vtep, net.HardwareAddr{2, 0, 0, 0, 0, 1}, from, to, text)...)
			return func() error { return sendUDP(netip.Addr{}, netip.AddrPortFrom(n.nodes[victim][i], 8472), packet) }
		}
		got := heard(t, victimPID, to, []attempt{
			{n.outside.PID(), "a stranger as a pod", vxlan(own, "a stranger as a pod")},
			{n.outside.PID(), "a stranger as a node", vxlan(n.nodes[node][i], "a stranger as a node")},
			{n.outside.PID(), "a stranger with a route", func() error {
				bits, at := "/32", []string{"lo"}
				if to.Is6() {
					bits, at = "/128", []string{"lo", "nodad"} // otherwise nobody can bind to it at first
				}
				n.outside.Run("ip", append([]string{"addr", "add", own.String() + bits, "dev"}, at...)...)
				defer n.outside.Run("ip", "addr", "del", own.String()+bits, "dev", "lo")
				n.outside.Run("ip", "route", "add", to.String()+bits, "via", n.nodes[victim][i].String())
				defer n.outside.Run("ip", "route", "del", to.String()+bits)
				return sendUDP(own, netip.AddrPortFrom(to, forgedPort), []byte("a stranger with a route"))
			}},
			{n.Agents[0].PID(), "a node as another's pod", vxlan(foreign, "a node as another's pod")},
			{n.Agents[0].PID(), "a node as the victim's neighbour", vxlan(n.web[victim][i], "a node as the victim's neighbour")},
			{clientPID, "a pod as its neighbour", vxlan(neighbour, "a pod as its neighbour")},
			{n.Agents[0].PID(), "a node as its pod", vxlan(own, "a node as its pod")},
		})
		if want := []string{"a node as its pod"}; !slices.Equal(got, want) {
			t.Errorf("%s got packets of %q, want %q", to, got, want)
		}
	}
}

// attempt is a packet that is sent from the network of a process.
type attempt struct {
	pid  int
	name string
	send func() error
}

// heard makes the attempts, and returns the texts that arrive at a pod until that of the last attempt has.
func heard(t *testing.T, pid int, at netip.Addr, all []attempt) (texts []string) {
	t.Helper()
	var listener *net.UDPConn
	if err := hosts.On(pid, func() (err error) {
		listener, err = net.ListenUDP("udp", &net.UDPAddr{IP: at.AsSlice(), Port: forgedPort})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, a := range all {
		if err := hosts.On(a.pid, a.send); err != nil {
			t.Fatalf("sending as %s: %v", a.name, err)
		}
	}
	last := all[len(all)-1].name
	for buffer := make([]byte, 2000); !slices.Contains(texts, last); {
		if err := listener.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		size, err := listener.Read(buffer)
		if err != nil {
			t.Errorf("%s: %q did not arrive: %v", at, last, err)
			return texts
		}
		texts = append(texts, string(buffer[:size]))
	}
	return texts
}

// sendUDP sends a packet; an invalid from is the address that the kernel chooses.
func sendUDP(from netip.Addr, to netip.AddrPort, data []byte) error {
	var local *net.UDPAddr
	if from.IsValid() {
		local = &net.UDPAddr{IP: from.AsSlice()}
	}
	conn, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(data)
	return err
}

// processOf returns a process of a pod.
func (n *network) processOf(t *testing.T, pod string) int {
	t.Helper()
	return hosts.PodProcess(t, strings.TrimSpace(n.api.Kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")))
}

// vtep is the MAC of a node's VXLAN device.
func (n *network) vtep(t *testing.T, node string, v6 bool) net.HardwareAddr {
	t.Helper()
	key := map[bool]string{true: "backend-v6-data", false: "backend-data"}[v6]
	var data struct{ VtepMAC string }
	text := n.api.Kubectl("get", "node", node, "-o", `jsonpath={.metadata.annotations.flannel\.alpha\.coreos\.com/`+key+`}`)
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatalf("%s of %s is %q: %v", key, node, text, err)
	}
	mac, err := net.ParseMAC(data.VtepMAC)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// forged is an Ethernet frame with a UDP packet to forgedPort.
func forged(toMAC, fromMAC net.HardwareAddr, from, to netip.Addr, text string) []byte {
	udp := endian.BigEndian.AppendUint16(nil, forgedPort)
	udp = endian.BigEndian.AppendUint16(udp, forgedPort)
	udp = endian.BigEndian.AppendUint16(udp, uint16(8+len(text)))
	udp = append(append(udp, 0, 0), text...)
	addresses := append(from.AsSlice(), to.AsSlice()...)
	frame := append(slices.Clone(toMAC), fromMAC...)
	if from.Is4() {
		header := append([]byte{0x45, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, addresses...)
		endian.BigEndian.PutUint16(header[10:], checksum(header))
		return slices.Concat(frame, []byte{0x08, 0x00}, header, udp)
	}
	endian.BigEndian.PutUint16(udp[6:], checksum(slices.Concat(addresses, []byte{0, 0, 0, byte(len(udp)), 0, 0, 0, unix.IPPROTO_UDP}, udp)))
	header := append([]byte{0x60, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64}, addresses...)
	return slices.Concat(frame, []byte{0x86, 0xdd}, header, udp)
}

// checksum is the checksum of the Internet protocols.
func checksum(data []byte) uint16 {
	sum := uint32(0)
	for i, b := range data {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
