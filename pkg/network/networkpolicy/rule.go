package networkpolicy

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
)

// direction is where a packet goes, as seen by the pod that a policy is about.
type direction int

const (
	ingress direction = iota
	egress
	directions
)

func (d direction) String() string { return [...]string{"ingress", "egress"}[d] }

// peer is the header field that has the other end's address.
func (d direction) peer() string { return [...]string{"saddr", "daddr"}[d] }

// family is 4 or 6; 0 is both.
type family int

// familyOf is an address's.
func familyOf(a netip.Addr) family {
	if a.Is4() {
		return 4
	}
	return 6
}

// ip is the name of the protocol in nft.
func (f family) ip() string {
	if f == 4 {
		return "ip"
	}
	return "ip6"
}

// rule allows packets: all that match everything which is set. There are no rules that deny.
type rule struct {
	direction direction
	family    family
	group     *groupSpec     // the peer is one of these pods
	block     []addressRange // the peer's address is in one of these; nil: anybody's
	proto     string         // tcp, udp or sctp; "": any, also without ports
	ports     []portRange    // nil: all
	named     string         // the port of this name of the pod that the packet goes to, with proto; "": any
}

// bare reports whether the rule allows everything.
func (r rule) bare() bool {
	return r.family == 0 && r.group == nil && r.block == nil && r.proto == "" && r.named == ""
}

// text is the rule as nft has it.
func (r rule) text() string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch {
	case r.group != nil:
		add("%s %s @%s", r.family.ip(), r.direction.peer(), groupSet(r.group.key, r.family))
	case len(r.block) == 1 && r.block[0].all():
		add("meta nfproto ipv%d", r.family)
	case r.block != nil:
		add("%s %s %s", r.family.ip(), r.direction.peer(), braced(r.block))
	}
	switch {
	case r.named != "":
		add("%s daddr . meta l4proto . th dport @%s", r.family.ip(), namedSet(portName{r.named, r.proto}, r.family))
	case r.proto != "" && r.ports == nil:
		add("meta l4proto %s", r.proto)
	case r.proto != "":
		add("%s dport %s", r.proto, braced(r.ports))
	}
	return strings.Join(append(words, "return"), " ")
}

// braced is a value of nft, or several.
func braced[T fmt.Stringer](values []T) string {
	if len(values) == 1 {
		return values[0].String()
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// portName is a name that containers give to a port, and the protocol it is of.
type portName struct{ name, proto string }

// groupSet and namedSet are the names of sets, one for each family.
func groupSet(key string, f family) string { return fmt.Sprintf("g%d-%s", f, key) }

func namedSet(p portName, f family) string { return fmt.Sprintf("n%d-%s-%s", f, p.name, p.proto) }

// digest is a short name for a content. Users choose the content, so it is long enough to make it hard for them to find
// two of one name.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:15]))
}
