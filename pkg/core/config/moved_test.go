package config

import (
	"net/netip"
	"slices"
	"testing"
)

// fakeNetwork is a host with a default route's source, "" for none, and addresses of interfaces and of bridges.
func fakeNetwork(route string, links, bridges []string) host {
	parse := func(texts []string) (out []netip.Addr) {
		for _, t := range texts {
			out = append(out, netip.MustParseAddr(t))
		}
		return out
	}
	return host{
		source: func(v6 bool) netip.Addr {
			if a, err := netip.ParseAddr(route); err == nil && a.Is6() == v6 {
				return a
			}
			return netip.Addr{}
		},
		addrs:  func() []netip.Addr { return slices.Concat(parse(links), parse(bridges)) },
		bridge: func(a netip.Addr) bool { return slices.Contains(parse(bridges), a) },
	}
}

func TestMoved(t *testing.T) {
	lan, other, docker := []string{"10.0.0.5"}, []string{"10.0.0.6"}, []string{"172.17.0.1"}
	for _, test := range []struct {
		name, have string
		source     AddressSource
		host       host
		want       string
		moved      bool
		lost       int
	}{
		{"nothing changed", "10.0.0.5", RouteAddress, fakeNetwork("10.0.0.5", lan, docker), "10.0.0.5", false, 0},
		{"the first address", "192.0.0.8", NoAddress, fakeNetwork("10.0.0.5", lan, nil), "10.0.0.5", true, 0},
		{"the first address, without a default route", "192.0.0.8", NoAddress, fakeNetwork("", lan, nil), "10.0.0.5", true, 0},
		{"still none", "192.0.0.8", NoAddress, fakeNetwork("", []string{"127.0.0.1", "192.0.0.8"}, nil), "192.0.0.8", false, 0},
		{"Docker starts before DHCP answers", "192.0.0.8", NoAddress, fakeNetwork("", nil, docker), "192.0.0.8", false, 0},
		{"DHCP answers after the start with Docker's", "172.17.0.1", BridgeAddress, fakeNetwork("10.0.0.5", lan, docker), "10.0.0.5", true, 0},
		{"Docker's network has another range", "172.17.0.1", BridgeAddress, fakeNetwork("", nil, []string{"172.18.0.1"}), "172.18.0.1", true, 0},
		{"another one", "10.0.0.5", RouteAddress, fakeNetwork("10.0.0.6", other, docker), "10.0.0.6", true, 0},
		{"another one, without a default route", "10.0.0.5", RouteAddress, fakeNetwork("", other, nil), "10.0.0.6", true, 0},
		{"between two leases", "10.0.0.5", RouteAddress, fakeNetwork("", nil, docker), "10.0.0.5", false, 1},
		{"a VPN takes the default route", "10.0.0.5", RouteAddress, fakeNetwork("10.0.0.6", append(lan, other...), nil), "10.0.0.5", false, 0},
		{"a modem brings a default route", "10.0.0.5", LinkAddress, fakeNetwork("10.0.0.6", append(lan, other...), nil), "10.0.0.5", false, 0},
		{"a given address", "10.0.0.5", "", fakeNetwork("10.0.0.6", other, nil), "10.0.0.5", false, 0},
		{"addresses of pods are none", "10.0.0.5", RouteAddress, fakeNetwork("", []string{"10.42.0.1"}, nil), "10.0.0.5", false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Network: Network{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}}
			c.Node.IPs = []netip.Addr{netip.MustParseAddr(test.have)}
			c.API.Advertise, c.API.AdvertiseNode = c.Node.IPs[0], true
			if test.source != "" {
				c.Node.Sources = []AddressSource{test.source}
			}
			got, moved, lost := c.moved(test.host)
			if got.Node.IPs[0].String() != test.want || moved != test.moved || len(lost) != test.lost {
				t.Errorf("%s, moved %t, lost %s; want %s, %t, %d", got.Node.IPs, moved, lost, test.want, test.moved, test.lost)
			}
			if got.API.Advertise != got.Node.IPs[0] {
				t.Errorf("the API is advertised at %s", got.API.Advertise)
			}
			if c.Node.IPs[0].String() != test.have {
				t.Error("the former configuration changed")
			}
		})
	}
}

func TestMovedKeepsOtherFamilies(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")
	c := Config{Node: Node{IPs: []netip.Addr{v4, v6}, Sources: []AddressSource{RouteAddress, LinkAddress}}}
	c.API.Advertise = v6 // given
	got, moved, _ := c.moved(fakeNetwork("10.0.0.6", []string{"10.0.0.6", "fd00::5"}, nil))
	if !moved || got.Node.IPs[0].String() != "10.0.0.6" || got.Node.IPs[1] != v6 || got.API.Advertise != v6 {
		t.Errorf("%s, %s, %t", got.Node.IPs, got.API.Advertise, moved)
	}
}
