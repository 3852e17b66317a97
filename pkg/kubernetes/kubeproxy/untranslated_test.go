package kubeproxy

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDropUntranslated: what is sent to a Service does not leave the machine by its default route.
func TestDropUntranslated(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("making a network namespace: %v", err)
	}
	uplink := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}}
	if err := errors.Join(netlink.LinkAdd(uplink), netlink.LinkSetUp(uplink)); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"192.0.2.10/24", "2001:db8::10/64"} {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = unix.IFA_F_NODAD
		everywhere := net.IPNet{IP: make(net.IP, len(a.Mask)), Mask: make(net.IPMask, len(a.Mask))}
		if err := errors.Join(netlink.AddrAdd(uplink, a), netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Dst: &everywhere})); err != nil {
			t.Fatal(err)
		}
	}
	services := []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd43::/112")}
	dropped := func(want bool) {
		t.Helper()
		for to, service := range map[string]bool{"10.43.255.1:53": true, "[fd43::ffff]:53": true, "10.44.0.0:53": false, "[fd43::1:0]:53": false} {
			conn, err := net.Dial("udp", to)
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Write([]byte("?"))
			conn.Close()
			if got := errors.Is(err, unix.EPERM); got != (want && service) {
				t.Errorf("sending to %s: %v", to, err)
			}
		}
	}
	dropped(false)
	if err := DropUntranslated(services); err != nil {
		t.Fatal(err)
	}
	dropped(true)

	if err := DropUntranslated(services); err != nil { // as a second start
		t.Fatal(err)
	}
	dropped(true)
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		t.Fatal(err)
	}
	rules := map[nftables.ChainHook]int{}
	for _, c := range chains {
		list, err := conn.GetRules(c.Table, c)
		if err != nil {
			t.Fatal(err)
		}
		rules[*c.Hooknum] += len(list)
	}
	if want := (map[nftables.ChainHook]int{*nftables.ChainHookForward: 2, *nftables.ChainHookOutput: 2}); !maps.Equal(rules, want) {
		t.Errorf("rules by hook, of both families: %v, want %v", rules, want)
	}
}
