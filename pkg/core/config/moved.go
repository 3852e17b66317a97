package config

import (
	"net/netip"
	"slices"
)

// AddressSource is how a node's address was found on its host.
type AddressSource string

// The sources of a node's address, the best one first.
const (
	RouteAddress  AddressSource = "route"  // the source address of the default route
	LinkAddress   AddressSource = "link"   // an address of some interface, without a default route
	BridgeAddress AddressSource = "bridge" // one of a bridge, which often leads to the host's own containers only
	NoAddress     AddressSource = "none"   // a stand-in: see StandIn
)

// String describes the source for coracle config.
func (s AddressSource) String() string {
	switch s {
	case RouteAddress:
		return "the source address of the default route"
	case NoAddress:
		return "a stand-in, as this host has loopback addresses only"
	}
	return "an address of this host, which has no default route"
}

// weak reports whether other hosts probably cannot reach the node at such an address.
func (s AddressSource) weak() bool { return s == BridgeAddress || s == NoAddress }

// Moved returns the configuration for the addresses that this host has now, and whether one of the node's is another one than before. An
// address that was given never changes, and one that the host still has only if it was a makeshift. One that is gone stays until there is
// another: between two leases of DHCP, a bridge of containers may have the only address. lost are those that the host does not have any more,
// and for which it has no other.
func (c Config) Moved() (now Config, moved bool, lost []netip.Addr) { return c.moved(thisHost()) }

func (c Config) moved(h host) (now Config, moved bool, lost []netip.Addr) {
	ours := slices.Concat(c.Network.ClusterCIDRs, c.Network.ServiceCIDRs)
	now = c
	now.Node.IPs, now.Node.Sources = slices.Clone(c.Node.IPs), slices.Clone(c.Node.Sources)
	for i, source := range c.Node.Sources {
		have := c.Node.IPs[i]
		found, how := h.nodeIP(have.Is6(), ours)
		if found == have { // usually, and then the many interfaces of a node need not be listed
			now.Node.Sources[i] = how
			continue
		}
		gone := !slices.Contains(h.addrs(), have)
		switch {
		case how.weak() && !(gone && source == BridgeAddress && how == BridgeAddress), !gone && !source.weak():
			if gone && source != NoAddress {
				lost = append(lost, have)
			}
		default:
			now.Node.IPs[i], now.Node.Sources[i], moved = found, how, true
		}
	}
	if moved && c.API.AdvertiseNode {
		now.API.Advertise = now.Node.IPs[0]
	}
	return now, moved, lost
}
