package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// DefaultPool is the name of the pool with the ranges that are given without a name.
const DefaultPool = "default"

// metalLB is the value that makes MetalLB's IPAddressPools count.
const metalLB = "metallb"

// manual is the suffix of a pool's name by which Services get no address of it unless they ask.
const manual = ":manual"

// ParseRange parses ADDRESS, FIRST-LAST or CIDR. The error is a sentence without its subject.
func ParseRange(text string) (Range, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		prefix = prefix.Masked()
		return Range{prefix.Addr(), lastOf(prefix)}, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, lastErr := netip.ParseAddr(strings.TrimSpace(to))
	first, last = first.Unmap(), last.Unmap()
	switch {
	case err != nil || lastErr != nil || first.Zone() != "" || last.Zone() != "":
		return Range{}, fmt.Errorf("is neither an address nor a range such as 192.0.2.240-192.0.2.250 or 192.0.2.240/28")
	case first.BitLen() != last.BitLen() || last.Less(first):
		return Range{}, fmt.Errorf("ends before it begins, or in another family")
	}
	return Range{first, last}, nil
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b) // it has the length of an address
	return last
}

// overlaps reports whether a range has addresses of a prefix.
func (r Range) overlaps(p netip.Prefix) bool {
	return p.Contains(r.First) || r.Contains(p.Masked().Addr())
}

// pools decodes [NAME[:manual]=]RANGE; ranges of the same name are one pool.
func (d *decoder) pools(r raw, cfg Config) (all []Pool) {
	v := r["lb-pool"]
	for _, it := range v.items {
		if it.text == metalLB {
			continue
		}
		name, text, named := strings.Cut(it.text, "=")
		if !named {
			name, text = DefaultPool, it.text
		}
		name, isManual := strings.CutSuffix(name, manual)
		span, err := ParseRange(text)
		switch {
		case err != nil:
			d.add("%s: %q %v", it.label(v.setting), text, err)
			continue
		case !subdomain(name):
			d.add("%s: %q is not a name for a pool: use letters, digits and dashes", it.label(v.setting), name)
			continue
		}
		if why := d.unfit(span, cfg); why != "" {
			d.add("%s: %s %s; choose addresses of the machines' network that no machine has", it.label(v.setting), span, why)
			continue
		}
		i := slices.IndexFunc(all, func(p Pool) bool { return p.Name == name })
		if i < 0 {
			i, all = len(all), append(all, Pool{Name: name, Manual: isManual})
		}
		if all[i].Manual != isManual {
			d.add("%s: the pool %s is manual in one place and not in another", it.label(v.setting), name)
		}
		all[i].Ranges = append(all[i].Ranges, span)
	}
	return all
}

// unfit says what is wrong with a range, "" if nothing is.
func (d *decoder) unfit(span Range, cfg Config) string {
	if why := unusable(span.First); why != "" {
		return "begins with " + why
	}
	for _, p := range slices.Concat(cfg.Network.ClusterCIDRs, cfg.Network.ServiceCIDRs) {
		if span.overlaps(p) {
			return fmt.Sprintf("overlaps the range %s of pods or Services", p)
		}
	}
	for _, ip := range slices.Concat(cfg.Node.IPs, cfg.Node.ExternalIPs) {
		if span.Contains(ip) {
			return fmt.Sprintf("contains the address %s of this node", ip)
		}
	}
	for _, vip := range cfg.API.VIPs {
		if span.Contains(vip) {
			return fmt.Sprintf("contains the address %s of the API (--vip)", vip)
		}
	}
	return ""
}

// vips decodes the addresses of the API.
func (d *decoder) vips(r raw, cfg Config) (all []netip.Addr) {
	v := r["vip"]
	for _, it := range v.items {
		addr, ok := d.addr(it, v.setting)
		if !ok {
			continue
		}
		why := d.unfit(Range{addr, addr}, cfg)
		switch {
		case why != "":
			d.add("%s: %s %s; choose an address of the servers' network that no machine has", it.label(v.setting), addr, why)
		case slices.ContainsFunc(all, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }):
			d.add("%s: %s is the second address of its family; give one of each at most", it.label(v.setting), addr)
		case !cfg.API.Bind.IsUnspecified() && cfg.API.Bind.IsValid():
			d.add("%s: the API listens on %s only, and would not answer at %s: leave --bind-address out", it.label(v.setting), cfg.API.Bind, addr)
		case d.settled && addr.Is6() && cfg.API.Bind == netip.IPv4Unspecified():
			d.add("%s: %s is IPv6, but the API listens on IPv4 only: choose an IPv4 address, or give the cluster both families with --cluster-cidr and --service-cidr", it.label(v.setting), addr)
		default:
			all = append(all, addr)
		}
	}
	return all
}

// Outside returns the address at which other machines reach the API: that which is valid as long as any server is, if there is one.
func (a API) Outside() netip.AddrPort {
	if len(a.VIPs) > 0 {
		return netip.AddrPortFrom(a.VIPs[0], a.Port)
	}
	return netip.AddrPortFrom(a.Advertise, a.Port)
}

// poolsText returns pools as a user types them.
func poolsText(c Config) string {
	var texts []string
	if c.Network.MetalLB {
		texts = append(texts, metalLB)
	}
	for _, p := range c.Network.Pools {
		name := p.Name + "="
		if p.Manual {
			name = p.Name + manual + "="
		}
		if p.Name == DefaultPool && !p.Manual {
			name = ""
		}
		for _, r := range p.Ranges {
			texts = append(texts, name+r.String())
		}
	}
	return strings.Join(texts, ",")
}
