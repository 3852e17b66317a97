package host

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// alone moves the test into a network namespace that has nothing but lo.
func alone(t *testing.T) *ledger.Ledger {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("making a network namespace: %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	return ledger.Open(paths.Dirs{Data: t.TempDir()})
}

// reaches reports whether the kernel would send to an address, and from which one.
func reaches(t *testing.T, to string) string {
	t.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(to, "53"))
	if err != nil {
		return "nowhere"
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return host
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestEnsureServiceRoutesWithoutNetwork(t *testing.T) {
	l := alone(t)
	node := []netip.Addr{netip.MustParseAddr("192.0.0.8"), netip.MustParseAddr("100:0:0:1::8")}
	for range 2 { // a second start finds it all
		if err := EnsureServiceRoutes(l, node, prefixes("10.43.0.0/16", "fd43::/112")); err != nil {
			t.Fatal(err)
		}
		for to, from := range map[string]string{
			"10.43.0.10": "192.0.0.8", "fd43::a": "100:0:0:1::8", "192.0.0.8": "192.0.0.8", "100:0:0:1::8": "100:0:0:1::8", "203.0.113.1": "nowhere",
		} {
			if got := reaches(t, to); got != from {
				t.Errorf("%s is reached from %s, want %s", to, got, from)
			}
		}
	}
	entries, err := l.Entries()
	if err != nil || len(entries) != 1 || entries[0].Kind != ledger.Link || entries[0].Name != footprint.ServiceLink {
		t.Errorf("ledger: %v, %v", entries, err)
	}
}

func TestEnsureServiceRoutesWithoutDefaultRoute(t *testing.T) {
	l := alone(t)
	lan := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "lan"}}
	if err := netlink.LinkAdd(lan); err != nil {
		t.Fatal(err)
	}
	address, _ := netlink.ParseAddr("10.9.9.9/24")
	if err := netlink.AddrAdd(lan, address); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lan); err != nil {
		t.Fatal(err)
	}
	node, services := []netip.Addr{netip.MustParseAddr("10.9.9.9")}, prefixes("10.43.0.0/16")
	if err := EnsureServiceRoutes(l, node, services); err != nil {
		t.Fatal(err)
	}
	if got := reaches(t, "10.43.0.10"); got != "10.9.9.9" {
		t.Errorf("a Service is reached from %s", got)
	}

	// With a default route there is nothing to do.
	if link, err := netlink.LinkByName(footprint.ServiceLink); err != nil || netlink.LinkDel(link) != nil {
		t.Fatal(err)
	}
	everywhere := &netlink.Route{LinkIndex: lan.Attrs().Index, Gw: net.IPv4(10, 9, 9, 1)}
	if err := netlink.RouteAdd(everywhere); err != nil {
		t.Fatal(err)
	}
	if err := EnsureServiceRoutes(l, node, services); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(footprint.ServiceLink); err == nil {
		t.Error("an interface was made although there is a default route")
	}
}

// TestPlaceholderIsDropped: when the machine gets an address, the placeholder goes, and connections to Services come from the new one.
func TestPlaceholderIsDropped(t *testing.T) {
	l := alone(t)
	services := prefixes("10.43.0.0/16")
	if err := EnsureServiceRoutes(l, []netip.Addr{netip.MustParseAddr("192.0.0.8")}, services); err != nil {
		t.Fatal(err)
	}
	changed, err := WatchAddresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	real := netip.MustParseAddr("172.30.0.2")
	eth := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
	if err := netlink.LinkAdd(eth); err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(eth, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(real, 24))}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("the new address was not noticed")
	}
	if err := netlink.LinkSetUp(eth); err != nil {
		t.Fatal(err)
	}
	if err := EnsureServiceRoutes(l, []netip.Addr{real}, services); err != nil {
		t.Fatal(err)
	}
	if from := reaches(t, "10.43.0.1"); from != real.String() {
		t.Errorf("Services are reached from %s", from)
	}
	link, err := netlink.LinkByName(footprint.ServiceLink)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := netlink.AddrList(link, netlink.FAMILY_V4); err != nil || len(left) > 0 {
		t.Errorf("%v are left on %s: %v", left, footprint.ServiceLink, err)
	}
}
