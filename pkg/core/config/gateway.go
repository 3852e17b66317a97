package config

import "net/netip"

// gatewayTable lists the settings of Ingresses and Gateways.
func gatewayTable() []setting {
	return []setting{
		{name: "ingress-classes", kind: list, arg: "CLASS", field: someClasses(func(c *Config) *[]string { return &c.Network.IngressClasses }), group: groupNetwork, shared: withServers,
			help: "Further IngressClass whose Ingresses are served, such as nginx or traefik; it is made if there is none"},
		{name: "log-gateway-requests", kind: toggle, def: "false", field: aBool(func(c *Config) *bool { return &c.Network.LogRequests }), group: groupNetwork, shared: withServers,
			help: "Log each request to an Ingress or Gateway, with its client and path"},
		{name: "gateway-http3", kind: toggle, def: "false", field: aBool(func(c *Config) *bool { return &c.Network.HTTP3 }), group: groupNetwork, shared: withServers,
			help: "Serve HTTPS of Ingresses and Gateways with HTTP/3 too, on the same ports of UDP"},
		{name: "gateway-proxy-protocol", kind: list, arg: "CIDR|IP", field: someNetworks(func(c *Config) *[]netip.Prefix { return &c.Network.Proxies }), group: groupNetwork, shared: withServers,
			help: "Load balancer whose connections to Ingresses and Gateways must begin with a header of the PROXY protocol (1 or 2), which names the client"},
	}
}

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
