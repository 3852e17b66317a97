package announcer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/network/addressvote"
)

var mac = [6]byte{2, 0, 0, 0, 0, 7}

func TestGratuitousARP(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	f := gratuitousARP(mac, address)
	broadcast := bytes.Repeat([]byte{0xff}, 6)
	if len(f) != 42 || !bytes.Equal(f[:6], broadcast) || !bytes.Equal(f[6:12], mac[:]) || binary.BigEndian.Uint16(f[12:]) != etherARP {
		t.Errorf("the frame is %x", f)
	}
	if sender, target := f[28:32], f[38:42]; !bytes.Equal(sender, address.AsSlice()) || !bytes.Equal(target, sender) || !bytes.Equal(f[22:28], mac[:]) {
		t.Errorf("the request is %x", f[14:])
	}
}

func TestUnsolicitedAdvertisement(t *testing.T) {
	address := netip.MustParseAddr("2001:db8::1")
	f := unsolicitedAdvertisement(mac, address)
	packet, body := f[14:], f[54:]
	if len(f) != 86 || packet[7] != 255 || !bytes.Equal(packet[8:24], address.AsSlice()) || int(binary.BigEndian.Uint16(packet[4:])) != len(body) {
		t.Errorf("the packet is %x", packet)
	}
	if body[0] != 136 || !bytes.Equal(body[8:24], address.AsSlice()) || !bytes.Equal(body[26:32], mac[:]) {
		t.Errorf("the advertisement is %x", body)
	}
	if sum := checksum(address, netip.MustParseAddr("ff02::1"), body); sum != 0 { // with its own checksum the sum is that of a right packet
		t.Errorf("the checksum is wrong by %x", sum)
	}
}

// TestGuard: only the API's port is open at its address, nothing at a Service's, and a Gateway's ports at its own.
func TestGuard(t *testing.T) {
	fake := knftables.NewFake(knftables.InetFamily, "coracle-addresses")
	tx := fake.NewTransaction()
	(&guard{}).render(tx, []guarded{
		{Addr: netip.MustParseAddr("192.0.2.1")},
		{Addr: netip.MustParseAddr("2001:db8::1"), local: true, ports: []string{"tcp dport 6443"}},
		{Addr: netip.MustParseAddr("192.0.2.2"), local: true, ports: portRules([]string{"80/TCP", "443/UDP", "1/SCTP; accept", "x/TCP"})},
	})
	if err := fake.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"iifname lo accept",
		"ip daddr 192.0.2.1 icmp type echo-request accept",
		"ip daddr 192.0.2.1 reject with icmpx admin-prohibited",
		"ip6 daddr 2001:db8::1 tcp dport 6443 accept",
		"ip6 daddr 2001:db8::1 icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert, packet-too-big, destination-unreachable, time-exceeded, parameter-problem } accept",
		"ip6 daddr 2001:db8::1 reject with icmpx admin-prohibited",
		"ip daddr 192.0.2.2 tcp dport 80 accept",
		"ip daddr 192.0.2.2 udp dport 443 accept",
		"ip daddr 192.0.2.2 icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem } accept",
		"ip daddr 192.0.2.2 reject with icmpx admin-prohibited",
	}
	var got []string
	for _, r := range fake.Table.Chains["input"].Rules {
		got = append(got, r.Rule)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the rules are\n%s", strings.Join(got, "\n"))
	}
}

// TestSlowGuard: an nft that takes longer than votes last neither stops the announcer nor makes it give up the address.
func TestSlowGuard(t *testing.T) {
	machine(t)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\nsleep 0.6\nexec "+nft+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	logger, _ := test.NewNullLogger()
	g := &guard{written: make(chan error, 1)}
	var later func()
	set := func(want ...guarded) error {
		return g.set(t.Context(), logger, want, func(f func()) { later = f })
	}
	end := func() {
		later()
		g.ended(t.Context(), logger, <-g.written)
	}
	one, other := guarded{Addr: netip.MustParseAddr("192.0.2.1")}, guarded{Addr: netip.MustParseAddr("192.0.2.2")}
	for range 2 {
		if err := set(one); !errors.Is(err, errWriting) || g.covers(one) {
			t.Fatalf("while nft runs: %v", err)
		}
	}
	end()
	if err := set(one); err != nil || !g.covers(one) {
		t.Errorf("when nft has ended: %v", err)
	}
	if g.lost(); !g.known {
		t.Error("the table is not there")
	}
	if err := set(one, other); !errors.Is(err, errWriting) || !g.covers(one) || g.covers(other) {
		t.Errorf("while the second address is written: %v", err)
	}
	end()

	// An address that comes back while the table is written without it is not covered.
	if err := set(other); !errors.Is(err, errWriting) {
		t.Fatal(err)
	}
	if err := set(one, other); !errors.Is(err, errWriting) || g.covers(one) || !g.covers(other) {
		t.Errorf("when it comes back: %v", err)
	}
	g.began = g.began.Add(-time.Minute)
	if err := set(one, other); err == nil || errors.Is(err, errWriting) {
		t.Errorf("when nft does not end: %v", err)
	}
	end()

	if err := os.Remove(filepath.Join(dir, "nft")); err != nil {
		t.Fatal(err)
	}
	if err := set(one); !errors.Is(err, errWriting) {
		t.Errorf("without nft: %v", err)
	}
	end()
	if err := set(one); err == nil || errors.Is(err, errWriting) {
		t.Errorf("after a failure: %v", err)
	}
	// nft may have failed after the kernel had the table.
	if err := set(other); err == nil || errors.Is(err, errWriting) || g.covers(other) {
		t.Errorf("the table of before a failure: %v", err)
	}
}

// machine gives the test a network of its own, with one interface.
func machine(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
	addInterface(t)
}

// addInterface adds the interface, with the addresses of the machine.
func addInterface(t *testing.T) {
	t.Helper()
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
	err := netlink.LinkAdd(link)
	for _, text := range []string{"192.0.2.5/24", "2001:db8::5/64"} {
		ip, network, _ := net.ParseCIDR(text)
		if err == nil {
			err = netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: network.Mask}, Flags: unix.IFA_F_NODAD})
		}
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlace(t *testing.T) {
	machine(t)
	own := []netip.Addr{netip.MustParseAddr("192.0.2.5")}
	for text, want := range map[string]string{
		"192.0.2.9":    "",
		"198.51.100.1": "", // on the interface of the node's address
		"2001:db8::9":  "",
		"2001:db9::9":  "no interface has its network",
		"192.0.2.5":    "an address of this machine's own",
		"192.0.2.255":  "the first or last address of the network 192.0.2.0/24",
		"192.0.2.0":    "the first or last address of the network 192.0.2.0/24",
	} {
		at, err := placeFor(netip.MustParseAddr(text), own)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && at.link.Attrs().Name != "eth0" {
			t.Errorf("%s is on %s", text, at.link.Attrs().Name)
		}
	}
}

// TestLifetime: the kernel has an address until it is removed or not renewed, and this machine does not use it for its own connections.
func TestLifetime(t *testing.T) {
	machine(t)
	for _, text := range []string{"192.0.2.9", "2001:db8::9"} {
		at, err := placeFor(netip.MustParseAddr(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it is renewed
			if err := at.set(); err != nil {
				t.Fatal(err)
			}
		}
		if err := at.announce(at.address); err != nil {
			t.Error(err)
		}
	}
	if got := leftovers(); len(got) != 2 {
		t.Fatalf("the kernel has %v", got)
	}
	routes, err := netlink.RouteGet(net.ParseIP("2001:db8::77"))
	if err != nil || routes[0].Src.String() != "2001:db8::5" {
		t.Errorf("connections come from %v (%v)", routes, err)
	}
	four, err := placeFor(netip.MustParseAddr("192.0.2.9"), nil)
	if err != nil || four.unset() != nil || four.unset() != nil {
		t.Errorf("it cannot be removed: %v", err)
	}
	began := time.Now()
	for len(leftovers()) > 0 {
		if time.Since(began) > (lifetime+4)*time.Second {
			t.Fatalf("the kernel still has %v", fmt.Sprint(leftovers()))
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("the kernel removed an address %s after it was renewed last", time.Since(began).Round(100*time.Millisecond))
}

// TestInterfaceGone: an address moves with the interface that it belongs to, and is another node's to announce if there is none.
func TestInterfaceGone(t *testing.T) {
	machine(t)
	logger, _ := test.NewNullLogger()
	address := netip.MustParseAddr("192.0.2.9")
	r := &running{log: logger, has: map[netip.Addr]*placed{}, refuses: map[netip.Addr]time.Time{}}
	r.tally.SetServers([]string{"a"})
	r.tally.Count("a", addressvote.Ballot{Seq: 1, Votes: []netip.Addr{address}}, time.Now())
	r.add(address, time.Now(), nil)
	remove := func() {
		t.Helper()
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first := r.has[address]
	remove()
	addInterface(t)
	r.renew()
	if second := r.has[address]; second == nil || second.link.Attrs().Index == first.link.Attrs().Index || len(leftovers()) != 1 {
		t.Fatalf("when the interface is back: %+v, the kernel has %v", second, leftovers())
	}
	remove()
	r.renew()
	if _, refused := r.refuses[address]; r.has[address] != nil || !refused || !slices.Contains(r.yields, address) {
		t.Errorf("without an interface: has %v, refuses %v, yields %v", r.has, r.refuses, r.yields)
	}
}
