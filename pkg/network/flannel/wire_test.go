package flannel

import (
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/test/golden"
)

func nodeAt(name string, podCIDRs []string, addresses ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Spec.PodCIDRs = podCIDRs
	for _, a := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return node
}

func TestPeersOf(t *testing.T) {
	m := &manager{cidrs: []netip.Prefix{four, six}, node: kube.NewOwnNode("", "own")}
	moved := nodeAt("b", []string{"10.42.2.0/24", "fd42:0:0:2::/64"}, "192.0.2.2", "2001:db8::2", "b.example")
	moved.Annotations = map[string]string{publicIPKey: "192.0.2.22", publicIPv6Key: "2001:db8::2"}
	got := m.peersOf([]*corev1.Node{
		moved,
		nodeAt("c-takes-half-of-b", []string{"10.42.2.128/25"}, "192.0.2.3"),
		nodeAt("d-takes-the-internet", []string{"198.51.100.0/24"}, "192.0.2.4"),
		nodeAt("e-takes-all", []string{"10.0.0.0/8"}, "192.0.2.5"),
		nodeAt("f-has-none", nil, "192.0.2.6"),
		nodeAt("own", []string{"10.42.0.0/24"}, "192.0.2.1"),
		nodeAt("a", []string{"10.42.1.0/24"}, "192.0.2.2"), // another machine has its address now
	})
	v4, v6 := netip.MustParsePrefix("10.42.2.0/24"), netip.MustParsePrefix("fd42:0:0:2::/64")
	want := peers{
		netip.MustParseAddr("192.0.2.2"):   {netip.MustParsePrefix("10.42.1.0/24"), v4},
		netip.MustParseAddr("192.0.2.22"):  {v4},
		netip.MustParseAddr("2001:db8::2"): {v6},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	again := moved.DeepCopy()
	if again.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}; !sameSender(moved, again) {
		t.Error("a node that tells its condition is another sender")
	}
	if again.Status.Addresses[0].Address = "192.0.2.7"; sameSender(moved, again) {
		t.Error("a node with another address is the same sender")
	}
}

var testPeers = peers{
	addr4:                              {netip.MustParsePrefix("10.42.1.0/24")},
	netip.MustParseAddr("192.0.2.11"):  {netip.MustParsePrefix("10.42.2.0/23"), netip.MustParsePrefix("10.42.4.0/24")},
	netip.MustParseAddr("2001:db8::1"): {netip.MustParsePrefix("fd42:0:0:1::/64")},
}

func TestWireRules(t *testing.T) {
	tx := knftables.NewFake(knftables.InetFamily, "coracle-wire").NewTransaction()
	newWire("cni0", []netip.Prefix{four, six}).render(tx, testPeers)
	golden.Check(t, "testdata/wire.golden", []byte(tx.String()))
}

// TestWireInKernel sends packets to the port of VXLAN.
func TestWireInKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Unshare(unix.CLONE_NEWNET))
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	w := newWire("cni0", []netip.Prefix{four, six})
	one, other, v6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.IPv6Loopback()
	must(w.write(t.Context(), peers{
		one: {netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("10.42.64.128/25"), netip.MustParsePrefix("10.42.128.0/18")},
		v6:  {netip.MustParsePrefix("fd42:0:0:1::/64"), netip.MustParsePrefix("fd42:0:0:1000::/52")},
	}))
	packet := func(number byte, from string) []byte {
		addr := netip.MustParseAddr(from)
		inner := append(make([]byte, 12), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64)
		if addr.Is4() {
			inner = append(make([]byte, 12), 0x08, 0x00, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0)
		}
		return slices.Concat([]byte{8, 0, 0, 0, 0, 0, number, 0}, inner, addr.AsSlice(), addr.AsSlice())
	}
	for _, tt := range []struct {
		name string
		from netip.Addr
		data []byte
		pass bool
	}{
		{"a node", one, packet(1, "10.42.1.7"), true},
		{"half a byte more", one, packet(1, "10.42.64.130"), true},
		{"half a byte less", one, packet(1, "10.42.191.255"), true},
		{"below half a byte", one, packet(1, "10.42.64.127"), false},
		{"above half a byte", one, packet(1, "10.42.192.0"), false},
		{"another's pod", one, packet(1, "10.42.2.7"), false},
		{"the other family", one, packet(1, "fd42:0:0:1::7"), false},
		{"a stranger", other, packet(1, "10.42.1.7"), false},
		{"another network", other, packet(2, "10.42.1.7"), true},
		{"too short", one, packet(1, "10.42.1.7")[:20], false},
		{"a node, IPv6", v6, packet(1, "fd42:0:0:1::7"), true},
		{"a node, IPv6, half a byte", v6, packet(1, "fd42:0:0:1fff::7"), true},
		{"another's pod, IPv6", v6, packet(1, "fd42:0:0:2000::7"), false},
	} {
		to := net.UDPAddr{IP: tt.from.AsSlice(), Port: vxlanPort} // a loopback address sends to itself
		listener, err := net.ListenUDP("udp", &to)
		must(err)
		must(send(to, tt.data))
		must(send(to, []byte{0, 0, 0, 0, 0, 0, 2, 0})) // another network's always arrives
		data := make([]byte, 200)
		size, err := listener.Read(data)
		must(err)
		if pass := slices.Equal(data[:size], tt.data); pass != tt.pass {
			t.Errorf("%s: passes: %t", tt.name, pass)
		}
		listener.Close()
	}
	must(nft.Remove("inet coracle-wire", "ip other"))
	if there, err := nft.Exists("inet coracle-wire"); there || err != nil {
		t.Errorf("the table is there: %t, %v", there, err)
	}
}

func send(to net.UDPAddr, data []byte) error {
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: to.IP}, &to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(data)
	return err
}

// TestWireRetries: only changes are written, and failures again.
func TestWireRetries(t *testing.T) {
	w := newWire("cni0", []netip.Prefix{four})
	fake := knftables.NewFake(knftables.InetFamily, "coracle-wire")
	attempts := 0
	w.open = func() (knftables.Interface, error) {
		if attempts++; attempts == 1 {
			return nil, os.ErrPermission
		}
		return fake, nil
	}
	tried := make(chan struct{})
	go w.keep(t.Context(), tried)
	set := func(pods string) { w.set(func() peers { return peers{addr4: {netip.MustParsePrefix(pods)}} }) }
	await := func(what, rule string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(fake.Dump(), rule); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not written", what)
			}
		}
	}
	set("10.42.1.0/24")
	<-tried
	await("what failed", "0xa2a01 accept")
	for range 3 {
		set("10.42.1.0/24")
		for len(w.nodes) > 0 { // until keep has read it
			runtime.Gosched()
		}
	}
	set("10.42.2.0/24")
	await("a change", "0xa2a02 accept")
	if attempts != 3 { // the fake's lock orders this after the write
		t.Errorf("%d attempts to write, want 3: the failure, its repetition and the change", attempts)
	}
}

// TestWireForwards: this machine forwards packets with addresses of pods from the bridge and the overlay only, wherever they go.
func TestWireForwards(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Unshare(unix.CLONE_NEWNET))
	for name, value := range map[string]string{"ip_forward": "1", "conf/all/rp_filter": "0", "conf/default/rp_filter": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o644); err != nil {
			t.Skip(err)
		}
	}
	links, sockets := map[string]netlink.Link{}, map[string]int{} // the sockets are at the other ends
	for i, name := range []string{"cni0", "eth0", "flannel.1"} {
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "to-" + name}))
		link, err := netlink.LinkByName(name)
		must(err)
		peer, err := netlink.LinkByName("to-" + name)
		must(err)
		must(netlink.LinkSetUp(link))
		must(netlink.LinkSetUp(peer))
		links[name] = link
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.ETH_P_IP<<8&0xffff|unix.ETH_P_IP>>8)
		must(err)
		defer unix.Close(fd)
		must(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_IP<<8&0xffff | unix.ETH_P_IP>>8, Ifindex: peer.Attrs().Index}))
		must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
		sockets[name] = fd
		to := net.IPv4(10, 42, byte(i), 7) // who is there
		must(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(to)}))
		elsewhere := net.HardwareAddr{2, 0, 0, 0, 0, 7} // or the other end forwards it too
		must(netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: to, HardwareAddr: elsewhere}))
	}
	w := newWire("cni0", []netip.Prefix{four})
	must(w.write(t.Context(), peers{addr4: {netip.MustParsePrefix("10.42.2.0/24")}}))
	packet := func(into string, from, to [4]byte) []byte {
		header := slices.Concat([]byte{0x45, 0, 0, 20, 0, 1, 0, 0, 64, 253, 0, 0}, from[:], to[:])
		sum := 0
		for i, b := range header {
			sum += int(b) << (8 * (1 - i%2))
		}
		sum = ^(sum>>16 + sum&0xffff)
		header[10], header[11] = byte(sum>>8), byte(sum)
		return slices.Concat(links[into].Attrs().HardwareAddr, make([]byte, 6), []byte{0x08, 0x00}, header)
	}
	own, other, stranger := [4]byte{10, 42, 0, 7}, [4]byte{10, 42, 2, 7}, [4]byte{198, 51, 100, 7}
	for _, tt := range []struct {
		name, in, out string
		from, to      [4]byte
		pass          bool
	}{
		{"a pod to another node", "cni0", "flannel.1", own, other, true},
		{"another node's pod", "flannel.1", "cni0", other, own, true},
		{"a stranger", "eth0", "cni0", stranger, own, true},
		{"a stranger as another node's pod", "eth0", "cni0", other, own, false},
		{"a stranger as a pod, to another node", "eth0", "flannel.1", own, other, false},
	} {
		_, err := unix.Write(sockets[tt.in], packet(tt.in, tt.from, tt.to))
		must(err)
		end := [4]byte{198, 51, 100, 250}
		_, err = unix.Write(sockets[tt.in], packet(tt.in, end, tt.to)) // always arrives
		must(err)
		passed := false
		for frame := make([]byte, 2000); ; {
			size, err := unix.Read(sockets[tt.out], frame)
			must(err)
			if size >= 34 && [4]byte(frame[26:30]) == end {
				break
			}
			passed = passed || size >= 34 && [4]byte(frame[26:30]) == tt.from
		}
		if passed != tt.pass {
			t.Errorf("%s: passes: %t", tt.name, passed)
		}
	}
}
