package networkpolicy

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

// span is a range of addresses of one family, both ends included.
type span struct{ from, to netip.Addr }

func (s span) String() string {
	if s.from == s.to {
		return s.from.String()
	}
	return s.from.String() + "-" + s.to.String()
}

func (s span) has(a netip.Addr) bool { return s.from.Compare(a) <= 0 && a.Compare(s.to) <= 0 }

// all reports whether every address of its family is in it.
func (s span) all() bool {
	whole := spanOf(netip.PrefixFrom(s.from, 0))
	return s == whole
}

// spanOf is the range of a prefix.
func spanOf(p netip.Prefix) span {
	p = p.Masked()
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	return span{p.Addr(), to}
}

// blockSpans returns what ipBlocks allow, as sorted ranges that neither overlap nor touch: each block without its
// exceptions, and all of them together. What one block excepts, another may still allow.
func blockSpans(blocks []*networkingv1.IPBlock) ([]span, error) {
	var all []span
	for _, b := range blocks {
		cidr, err := netip.ParsePrefix(b.CIDR)
		if err != nil {
			return nil, fmt.Errorf("reading ipBlock: %w", err)
		}
		left := []span{spanOf(cidr)}
		for _, text := range b.Except {
			except, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("reading the exceptions of ipBlock %s: %w", cidr, err)
			}
			left = without(left, spanOf(except))
		}
		all = append(all, left...)
	}
	return merged(all), nil
}

// without takes one range out of others.
func without(spans []span, hole span) []span {
	var out []span
	for _, s := range spans {
		if s.from.BitLen() != hole.from.BitLen() || hole.to.Less(s.from) || s.to.Less(hole.from) {
			out = append(out, s)
			continue
		}
		if s.from.Less(hole.from) {
			out = append(out, span{s.from, hole.from.Prev()})
		}
		if hole.to.Less(s.to) {
			out = append(out, span{hole.to.Next(), s.to})
		}
	}
	return out
}

// merged sorts ranges, IPv4 first, and joins those that overlap or touch.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && out[n-1].from.BitLen() == s.from.BitLen() {
			last := &out[n-1]
			if next := last.to.Next(); !next.IsValid() || s.from.Compare(next) <= 0 {
				if last.to.Less(s.to) {
					last.to = s.to
				}
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// portSpan is a range of ports, both ends included.
type portSpan struct{ from, to uint16 }

func (p portSpan) String() string {
	if p.from == p.to {
		return fmt.Sprint(p.from)
	}
	return fmt.Sprintf("%d-%d", p.from, p.to)
}

// mergedPorts sorts ranges of ports and joins those that overlap or touch: nft refuses a set whose ranges overlap.
func mergedPorts(spans []portSpan) []portSpan {
	slices.SortFunc(spans, func(a, b portSpan) int { return int(a.from) - int(b.from) })
	var out []portSpan
	for _, s := range spans {
		if n := len(out); n > 0 && int(s.from) <= int(out[n-1].to)+1 {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}
