package announcer

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lifetime is how long the kernel keeps an address that is not renewed, in seconds. It covers a restart of this process.
const lifetime = 4

// place is an address on an interface.
type place struct {
	link    netlink.Link
	address netip.Addr
}

// placeFor returns the interface for an address: the one whose network it is in, or else the one with the node's address.
func placeFor(address netip.Addr, own []netip.Addr) (place, error) {
	family := netlink.FAMILY_V4
	if address.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := netlink.AddrList(nil, family)
	if err != nil {
		return place{}, fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	index, inside := 0, false
	for _, have := range all {
		ip, _ := netip.AddrFromSlice(have.IP)
		ip = ip.Unmap()
		ones, _ := have.Mask.Size()
		network := netip.PrefixFrom(ip, ones).Masked()
		if ip == address && !announced(have) {
			return place{}, fmt.Errorf("it is an address of this machine's own")
		}
		if network.Contains(address) && !network.IsSingleIP() {
			if address.Is4() && ones < 31 && (address == network.Addr() || address == last(network)) {
				return place{}, fmt.Errorf("it is the first or last address of the network %s, which no machine can have", network)
			}
			index, inside = have.LinkIndex, true
		}
		if !inside && slices.Contains(own, ip) {
			index = have.LinkIndex
		}
	}
	if index == 0 {
		return place{}, fmt.Errorf("no interface has its network, or the node's address of its family")
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return place{}, fmt.Errorf("reading the interface: %w", err)
	}
	return place{link, address}, nil
}

// last returns the last address of an IPv4 network.
func last(network netip.Prefix) netip.Addr {
	b := network.Addr().As4()
	for bit := network.Bits(); bit < 32; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(b)
}

// entry is the address as the kernel gets it: alone in its network, never a source address of this machine's own connections (its preferred
// lifetime is 0), and at once, without a look whether a neighbour has it, which takes IPv6 a second.
func (p place) entry() *netlink.Addr {
	bits := p.address.BitLen()
	e := &netlink.Addr{IPNet: &net.IPNet{IP: p.address.AsSlice(), Mask: net.CIDRMask(bits, bits)}, ValidLft: lifetime}
	if p.address.Is6() {
		e.Flags = unix.IFA_F_NODAD
	}
	return e
}

// set adds the address, or renews it.
func (p place) set() error {
	if err := netlink.AddrReplace(p.link, p.entry()); err != nil {
		return fmt.Errorf("adding it to %s: %w", p.link.Attrs().Name, err)
	}
	return nil
}

// unset removes the address.
func (p place) unset() error {
	if err := netlink.AddrDel(p.link, p.entry()); err != nil && err != unix.EADDRNOTAVAIL {
		return fmt.Errorf("removing it from %s: %w", p.link.Attrs().Name, err)
	}
	return nil
}

// announced reports whether an address is from this package: no other program gives one such a short life.
func announced(a netlink.Addr) bool {
	ones, bits := a.Mask.Size()
	return ones == bits && a.ValidLft > 0 && a.ValidLft <= lifetime && a.PreferedLft == 0
}

// leftovers returns the addresses that this component placed before it was killed, as far as the kernel still has them.
func leftovers() map[netip.Addr]place {
	out := map[netip.Addr]place{}
	all, _ := netlink.AddrList(nil, netlink.FAMILY_ALL) // without them the servers give this node its addresses anew
	for _, have := range all {
		ip, ok := netip.AddrFromSlice(have.IP)
		if link, err := netlink.LinkByIndex(have.LinkIndex); ok && err == nil && announced(have) {
			out[ip.Unmap()] = place{link, ip.Unmap()}
		}
	}
	return out
}
