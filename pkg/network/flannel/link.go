package flannel

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/flannel-io/flannel/pkg/backend"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// external returns the interface for the traffic to other nodes.
func (f Flannel) external() (*backend.ExternalInterface, error) {
	link, err := f.iface()
	if err != nil {
		return nil, err
	}
	out := &backend.ExternalInterface{Iface: link, IfaceName: link.Name}
	for _, addr := range f.IPs {
		std := net.IP(addr.AsSlice())
		if addr.Is4() {
			out.IfaceAddr, out.ExtAddr = std, std
		} else {
			out.IfaceV6Addr, out.ExtV6Addr = std, std
		}
	}
	return out, nil
}

func (f Flannel) iface() (*net.Interface, error) {
	if f.Iface != "" {
		link, err := net.InterfaceByName(f.Iface)
		if err != nil {
			return nil, fmt.Errorf("looking for the interface %s: %w", f.Iface, err)
		}
		return link, nil
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			continue // it was deleted meanwhile
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.IP(f.IPs[0].AsSlice())) {
				return &link, nil
			}
		}
	}
	return nil, fmt.Errorf("looking for the node's address %s: %w", f.IPs[0], errNoIface)
}

func loopback(link *backend.ExternalInterface) bool { return link.Iface.Flags&net.FlagLoopback != 0 }

// The overhead of VXLAN in bytes, with outer IPv4 and IPv6 headers.
const vxlanOverIPv4, vxlanOverIPv6 = 50, 70

// subnet returns the node's pod subnet with the largest MTU that fits through the backend.
func (f Flannel) subnet(podCIDRs []string, link *backend.ExternalInterface) (podsubnet.Subnet, error) {
	s := podsubnet.Subnet{ClusterCIDRs: f.ClusterCIDRs, MTU: link.Iface.MTU}
	var err error
	if s.PodCIDRs, err = parseSubnets(podCIDRs); err != nil {
		return s, err
	}
	switch {
	case loopback(link):
		s.MTU = 1500 // 65536 of the loopback interface is too large for Ethernet
	case f.Backend == "vxlan" && link.ExtV6Addr != nil:
		s.MTU -= vxlanOverIPv6
	case f.Backend == "vxlan":
		s.MTU -= vxlanOverIPv4
	case f.Backend == "wireguard-native":
		s.MTU -= wireguardOverhead
	}
	return s, nil
}

// ensureBridge makes the bridge with the gateway addresses before the first pod, because DNS listens there. The CNI plugin does not
// change an existing bridge.
func ensureBridge(name string, s podsubnet.Subnet) error {
	link, err := netlink.LinkByName(name)
	if _, missing := err.(netlink.LinkNotFoundError); missing {
		link, err = addBridge(name, s)
	}
	if err != nil {
		return fmt.Errorf("making the bridge %s: %w", name, err)
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("making the bridge %s: an interface of this name exists and is a %s", name, link.Type())
	}
	if link.Attrs().Alias != ledger.LinkAlias {
		if err := netlink.LinkSetAlias(link, ledger.LinkAlias); err != nil {
			return fmt.Errorf("marking %s as coracle's: %w", name, err)
		}
	}
	if link.Attrs().MTU != s.MTU {
		if err := netlink.LinkSetMTU(link, s.MTU); err != nil {
			return fmt.Errorf("setting the MTU of %s: %w", name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing %s up: %w", name, err)
	}
	return setAddresses(link, s)
}

// addBridge makes the bridge with a fixed MAC address. Otherwise the kernel would change it with the ports.
func addBridge(name string, s podsubnet.Subnet) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = name, s.MTU, -1
	attrs.HardwareAddr = net.HardwareAddr{0x0a, 0x58, 0, 0, 0, 0}
	last := podsubnet.Gateway(s.PodCIDRs[0]).Addr().AsSlice()
	copy(attrs.HardwareAddr[2:], last[len(last)-4:])
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	return netlink.LinkByName(name)
}

// setAddresses sets the gateway addresses of the bridge, and removes addresses of former subnets.
func setAddresses(link netlink.Link, s podsubnet.Subnet) error {
	name := link.Attrs().Name
	have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the addresses of %s: %w", name, err)
	}
	gateways := map[string]bool{}
	for _, cidr := range s.PodCIDRs {
		own := podsubnet.Gateway(cidr)
		gateways[own.String()] = true
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: ipNet(cidr).Mask}}
		if own.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // the address is unique, and DNS listens on it at once
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", name, own, err)
		}
	}
	for _, addr := range have {
		if gateways[addr.IPNet.String()] || addr.IP.IsLinkLocalUnicast() {
			continue
		}
		if err := netlink.AddrDel(link, &addr); err != nil {
			return fmt.Errorf("removing the old address %s from %s: %w", addr.IPNet, name, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
