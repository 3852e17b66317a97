package portguard

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestKernel sends frames into the port of a pod, and looks which of them the bridge sends on.
func TestKernel(t *testing.T) {
	isolate(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(netlink.LinkAdd(bridge))
	must(netlink.LinkSetUp(bridge))
	sockets := map[string]int{}
	for _, name := range []string{"pod", "new", "other"} {
		port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Index}, PeerName: "in-" + name}
		must(netlink.LinkAdd(port))
		peer, err := netlink.LinkByName(port.PeerName)
		must(err)
		must(netlink.LinkSetUp(port))
		must(netlink.LinkSetUp(peer))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.ETH_P_ALL<<8)
		must(err)
		defer unix.Close(fd)
		must(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8, Ifindex: peer.Attrs().Index}))
		sockets[name] = fd
	}
	must(unix.SetsockoptTimeval(sockets["other"], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	own, another, ownMAC, anotherMAC := addr("10.42.3.2"), addr("10.42.3.3"), mac("0a:58:0a:2a:03:02"), mac("0a:58:0a:2a:03:03")
	own6, another6 := addr("fd42::2"), addr("fd42::3")
	must(Add(Port{Name: "pod", MAC: ownMAC, IPs: []netip.Addr{own, own6}}))

	v4 := func(m net.HardwareAddr, a netip.Addr) []byte {
		header := slices.Concat([]byte{0x45, 0, 0, 20, 0, 1, 0, 0, 64, 253, 0, 0}, a.AsSlice(), another.AsSlice())
		sum := 0
		for i, b := range header {
			sum += int(b) << (8 * (1 - i%2))
		}
		sum = ^(sum>>16 + sum&0xffff)
		header[10], header[11] = byte(sum>>8), byte(sum) // or br_netfilter drops it
		return slices.Concat(everyone, m, []byte{0x08, 0x00}, header)
	}
	v6 := func(m net.HardwareAddr, a netip.Addr, next byte, body ...byte) []byte {
		return slices.Concat(everyone, m, []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), next, 255}, a.AsSlice(), another6.AsSlice(), body)
	}
	arp := func(m, sender net.HardwareAddr, a netip.Addr) []byte {
		return slices.Concat(everyone, m, []byte{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2}, sender, a.AsSlice(), everyone, a.AsSlice())
	}
	icmp := func(kind byte, target netip.Addr) []byte {
		return slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice())
	}
	hidden := func(body []byte) []byte { return append([]byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, body...) } // behind a header of options
	for _, tt := range []struct {
		name  string
		pass  bool
		frame []byte
	}{
		{"IPv4", true, v4(ownMAC, own)},
		{"IPv4 of another", false, v4(ownMAC, another)},
		{"IPv4 with another MAC", false, v4(anotherMAC, own)},
		{"IPv4 of no address", false, v4(ownMAC, addr("0.0.0.0"))},
		{"ARP", true, arp(ownMAC, ownMAC, own)},
		{"ARP for another", false, arp(ownMAC, ownMAC, another)},
		{"ARP with another MAC", false, arp(ownMAC, anotherMAC, own)},
		{"ARP from another MAC", false, arp(anotherMAC, ownMAC, own)},
		{"IPv6", true, v6(ownMAC, own6, 59)},
		{"IPv6, link-local", true, v6(ownMAC, linkLocal(ownMAC), 59)},
		{"IPv6 of another", false, v6(ownMAC, another6, 59)},
		{"IPv6 link-local of another", false, v6(ownMAC, linkLocal(anotherMAC), 59)},
		{"neighbour advertisement", true, v6(ownMAC, own6, unix.IPPROTO_ICMPV6, icmp(136, own6)...)},
		{"neighbour advertisement for another", false, v6(ownMAC, own6, unix.IPPROTO_ICMPV6, icmp(136, another6)...)},
		{"the same, hidden", false, v6(ownMAC, own6, 0, hidden(icmp(136, another6))...)},
		{"neighbour solicitation", true, v6(ownMAC, own6, unix.IPPROTO_ICMPV6, icmp(135, another6)...)},
		{"router advertisement", false, v6(ownMAC, linkLocal(ownMAC), unix.IPPROTO_ICMPV6, icmp(134, own6)...)},
		{"the same, hidden", false, v6(ownMAC, linkLocal(ownMAC), 0, hidden(icmp(134, own6))...)},
		{"redirect", false, v6(ownMAC, linkLocal(ownMAC), unix.IPPROTO_ICMPV6, icmp(137, own6)...)},
		{"VLAN", false, slices.Concat(everyone, ownMAC, []byte{0x81, 0x00, 0, 7}, v4(ownMAC, own)[12:])},
		{"LLDP", false, slices.Concat(everyone, ownMAC, []byte{0x88, 0xcc}, make([]byte, 46))},
	} {
		_, err := unix.Write(sockets["pod"], tt.frame)
		must(err)
		end := slices.Concat(everyone, anotherMAC, []byte{0x88, 0xb5}, []byte(tt.name)) // the port new has no rules
		_, err = unix.Write(sockets["new"], end)
		must(err)
		passed := false
		for frame := make([]byte, 2000); ; {
			size, err := unix.Read(sockets["other"], frame)
			must(err)
			if slices.Equal(frame[:size], end) {
				break
			}
			untagged := slices.Concat(tt.frame[:12], tt.frame[16:])                                         // as the kernel gives frames of VLANs to sockets
			passed = passed || slices.Equal(frame[:size], tt.frame) || slices.Equal(frame[:size], untagged) // it sends frames of its own too
		}
		if passed != tt.pass {
			t.Errorf("%s: passes: %t", tt.name, passed)
		}
	}
}

var everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func mac(text string) net.HardwareAddr {
	m, _ := net.ParseMAC(text)
	return m
}
