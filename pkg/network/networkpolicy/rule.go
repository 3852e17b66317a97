package networkpolicy

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
)

// direction is the direction of a packet, as seen by the pod that a policy selects.
type direction int

const (
	ingress direction = iota
	egress
	directions
)

func (d direction) String() string { return [...]string{"ingress", "egress"}[d] }

// peer is the header field with the address of the peer.
func (d direction) peer() string { return [...]string{"saddr", "daddr"}[d] }

// family is 4 or 6; 0 is both.
type family int

// familyOf returns the family of an address.
func familyOf(a netip.Addr) family {
	if a.Is4() {
		return 4
	}
	return 6
}

// ip is the nft name of the family's protocol.
func (f family) ip() string {
	if f == 4 {
		return "ip"
	}
	return "ip6"
}

// rule allows the packets that match all of its fields that are set. There are no rules that deny.
type rule struct {
	direction direction
	family    family
	group     *groupSpec     // the peer is one of these pods
	block     []addressRange // the peer's address is in one of these; nil: any address
	proto     string         // tcp, udp or sctp; "": any protocol
	ports     []portRange    // nil: all
	named     string         // name of a port of the receiving pod, with proto; "": any
}

// allowsAll reports whether the rule allows everything.
func (r rule) allowsAll() bool {
	return r.family == 0 && r.group == nil && r.block == nil && r.proto == "" && r.named == ""
}

// text is the rule in the syntax of nft.
func (r rule) text() string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch {
	case r.group != nil:
		add("%s %s @%s", r.family.ip(), r.direction.peer(), groupSet(r.group.key, r.family))
	case len(r.block) == 1 && r.block[0].all():
		add("meta nfproto ipv%d", r.family)
	case r.block != nil:
		add("%s %s %s", r.family.ip(), r.direction.peer(), nftValue(r.block))
	}
	switch {
	case r.named != "":
		add("%s daddr . meta l4proto . th dport @%s", r.family.ip(), namedSet(portName{r.named, r.proto}, r.family))
	case r.proto != "" && r.ports == nil:
		add("meta l4proto %s", r.proto)
	case r.proto != "":
		add("%s dport %s", r.proto, nftValue(r.ports))
	}
	return strings.Join(append(words, "return"), " ")
}

// nftValue is one value, or an anonymous set of several, in the syntax of nft.
func nftValue[T fmt.Stringer](values []T) string {
	if len(values) == 1 {
		return values[0].String()
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// portName is the name that containers give to a port, with its protocol.
type portName struct{ name, proto string }

// groupSet and namedSet are the names of sets, one for each family.
func groupSet(key string, f family) string { return fmt.Sprintf("g%d-%s", f, key) }

func namedSet(p portName, f family) string { return fmt.Sprintf("n%d-%s-%s", f, p.name, p.proto) }

// digest is a short name for a content. Users choose the content, so the name is long enough to make collisions infeasible (120 bits).
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:15]))
}
