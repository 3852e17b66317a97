package nodetunnel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// allow returns the address to connect to when a server requests an address. Only the node itself and its pods are allowed, not other
// machines of the node's network.
func (t Tunnels) allow(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if host == t.Name {
		return net.JoinHostPort(t.IPs[0].String(), port), nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "", fmt.Errorf("%s is neither node %s nor an address", host, t.Name)
	}
	ip = ip.Unmap()
	switch {
	case slices.Contains(t.IPs, ip):
		return address, nil
	case slices.Contains(t.ExternalIPs, ip): // the NAT may have it
		return net.JoinHostPort(t.sameFamily(ip).String(), port), nil
	case slices.ContainsFunc(t.Pods(), func(p netip.Prefix) bool { return p.Contains(ip) }):
		return address, nil
	}
	return "", fmt.Errorf("%s is not an address of node %s or of its pods", host, t.Name)
}

// sameFamily returns the node's address of the same family, or else its first.
func (t Tunnels) sameFamily(ip netip.Addr) netip.Addr {
	for _, own := range t.IPs {
		if own.Is4() == ip.Is4() {
			return own
		}
	}
	return t.IPs[0]
}
