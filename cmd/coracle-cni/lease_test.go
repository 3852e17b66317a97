package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// held lists the addresses that have a lease.
func held(t *testing.T, l leases) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dataDir, l.network, "*[.:]*[0-9a-f]"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if _, err := netip.ParseAddr(filepath.Base(f)); err == nil {
			out = append(out, filepath.Base(f))
		}
	}
	slices.Sort(out)
	return out
}

func TestLeases(t *testing.T) {
	l := leases{t.TempDir(), "coracle", thisBoot}
	dual := prefixes("10.42.3.0/24", "fd00:42::/64")
	first, err := l.take("a", "eth0", dual)
	if err != nil {
		t.Fatal(err)
	}
	if got := first.IPs[0].Address.String() + " " + first.IPs[1].Address.String(); got != "10.42.3.2/24 fd00:42::2/64" {
		t.Errorf("leased %s", got)
	}
	if got := first.IPs[0].Gateway.String() + " " + first.IPs[1].Gateway.String(); got != "10.42.3.1 fd00:42::1" {
		t.Errorf("the gateways are %s", got)
	}
	if err := l.check("a", "eth0"); err != nil {
		t.Error(err)
	}
	if err := l.check("b", "eth0"); err == nil {
		t.Error("found a lease of a container that has none")
	}
	for range 2 { // DEL may be repeated
		if err := l.release("a", "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	if left := held(t, l); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
}

func TestTakeAllOrNone(t *testing.T) {
	l := leases{t.TempDir(), "coracle", thisBoot}
	// The second subnet has room for one pod beside the gateway.
	subnets := prefixes("10.42.3.0/24", "10.43.0.0/30")
	if _, err := l.take("a", "eth0", subnets); err != nil {
		t.Fatal(err)
	}
	if got, err := l.take("b", "eth0", subnets); err == nil {
		t.Errorf("leased %v although the second subnet is full", got.IPs)
	}
	if got := held(t, l); !slices.Equal(got, []string{"10.42.3.2", "10.43.0.2"}) {
		t.Errorf("leased: %v", got)
	}
	if _, err := l.take("c", "eth0", prefixes("10.44.0.0/32")); err == nil {
		t.Error("leased an address of a subnet without room")
	}
}

func TestKeepOnly(t *testing.T) {
	l := leases{t.TempDir(), "coracle", thisBoot}
	for _, id := range []string{"a", "b", "c"} {
		if _, err := l.take(id, "eth0", prefixes("10.42.3.0/24")); err != nil {
			t.Fatal(err)
		}
	}
	for _, valid := range [][]types.GCAttachment{
		{{ContainerID: "b", IfName: "eth0"}, {ContainerID: "c", IfName: "net1"}},
		{{ContainerID: "b", IfName: "eth0"}},
	} {
		if err := l.keepOnly(valid); err != nil {
			t.Fatal(err)
		}
		if got := held(t, l); !slices.Equal(got, []string{"10.42.3.3"}) {
			t.Errorf("leased: %v", got)
		}
	}
	if _, err := os.Stat(filepath.Join(l.dataDir, l.network, "last_reserved_ip.0")); err != nil {
		t.Errorf("the place to go on from is lost: %v", err)
	}
}
