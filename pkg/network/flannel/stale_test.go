package flannel

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestStale(t *testing.T) {
	cidrs := []netip.Prefix{four, six}
	known := []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("fd42:0:0:1::/64")}
	for name, c := range map[string]struct {
		dst, gw string
		stale   bool
	}{
		"another node's":           {"10.42.1.0/24", "10.42.1.0", false},
		"another node's, IPv6":     {"fd42:0:0:1::/64", "fd42:0:0:1::", false},
		"nobody's":                 {"10.42.2.0/24", "10.42.2.0", true},
		"nobody's, by a node":      {"10.42.2.0/24", "192.0.2.11", true},
		"nobody's, IPv6":           {"fd42:0:0:2::/64", "fd42:0:0:2::", true},
		"the node's own":           {"10.42.2.0/24", "", false},
		"the default":              {"", "192.0.2.1", false},
		"somewhere else":           {"10.99.0.0/24", "192.0.2.1", false},
		"around the pods":          {"10.0.0.0/8", "192.0.2.1", false},
		"all pods, by the user":    {"10.42.0.0/16", "192.0.2.1", false},
		"a part of another node's": {"10.42.1.0/25", "10.42.1.0", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := netlink.Route{Gw: net.ParseIP(c.gw)}
			if c.dst != "" {
				_, r.Dst, _ = net.ParseCIDR(c.dst)
			}
			if got := len(staleRoutes([]netlink.Route{r}, cidrs, known)) == 1; got != c.stale {
				t.Errorf("stale: %t", got)
			}
		})
	}
}
