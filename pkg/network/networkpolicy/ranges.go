package networkpolicy

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	networkingv1 "k8s.io/api/networking/v1"
)

// blockRanges returns the addresses that ipBlocks allow, as sorted ranges, IPv4 first, that neither overlap nor touch: each
// block without its own exceptions, and all of them together. Another block may allow what one block excepts.
func blockRanges(blocks []*networkingv1.IPBlock) (out []addressRange, err error) {
	var all netipx.IPSetBuilder
	for _, b := range blocks {
		cidr, err := netip.ParsePrefix(b.CIDR)
		if err != nil {
			return nil, fmt.Errorf("reading ipBlock: %w", err)
		}
		var block netipx.IPSetBuilder
		block.AddPrefix(cidr)
		for _, text := range b.Except {
			except, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("reading the exceptions of ipBlock %s: %w", cidr, err)
			}
			block.RemovePrefix(except)
		}
		set, err := block.IPSet()
		if err != nil {
			return nil, fmt.Errorf("reading ipBlock %s: %w", cidr, err)
		}
		all.AddSet(set)
	}
	set, err := all.IPSet()
	if err != nil {
		return nil, err
	}
	for _, r := range set.Ranges() {
		out = append(out, addressRange{r})
	}
	return out, nil
}

// addressRange is a range of addresses of one family, both ends included. String returns it as nft writes it.
type addressRange struct{ netipx.IPRange }

func (r addressRange) String() string {
	if r.From() == r.To() {
		return r.From().String()
	}
	return r.IPRange.String()
}

// all reports whether the range has every address of its family.
func (r addressRange) all() bool {
	return r.IPRange == netipx.RangeOfPrefix(netip.PrefixFrom(r.From(), 0))
}

// portRange is a range of ports, both ends included.
type portRange struct{ from, to uint16 }

func (p portRange) String() string {
	if p.from == p.to {
		return fmt.Sprint(p.from)
	}
	return fmt.Sprintf("%d-%d", p.from, p.to)
}

// mergedPorts sorts ranges of ports and joins those that overlap or touch: nft refuses a set whose ranges overlap.
func mergedPorts(ranges []portRange) []portRange {
	slices.SortFunc(ranges, func(a, b portRange) int { return int(a.from) - int(b.from) })
	var out []portRange
	for _, s := range ranges {
		if n := len(out); n > 0 && int(s.from) <= int(out[n-1].to)+1 {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}
