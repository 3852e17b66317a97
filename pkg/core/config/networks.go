package config

import "net/netip"

// someNetworks is the binding of a list of networks, some of which may be a single address. All addresses are none.
func someNetworks(field func(*Config) *[]netip.Prefix) binding {
	return bind(field, func(d *decoder, v *value) (out []netip.Prefix) {
		for _, it := range v.items {
			network, err := netip.ParsePrefix(it.text)
			if address, failed := netip.ParseAddr(it.text); failed == nil && address.Zone() == "" {
				network, err = netip.PrefixFrom(address, address.BitLen()), nil
			}
			switch {
			case err != nil || network.Addr().Is4In6():
				d.add("%s: %q is neither a CIDR nor an IP address", it.label(v.setting), it.text)
			case network.Bits() == 0:
				d.add("%s: %s covers everybody: name the addresses that are trusted", it.label(v.setting), it.text)
			default:
				out = append(out, network.Masked())
			}
		}
		return out
	}, joined[netip.Prefix])
}
