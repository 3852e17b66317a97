package networkpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/bridgefilter"
)

// tableName is our table, of family inet.
const tableName = bridgefilter.Table

// The chains that are always there.
const (
	denyChain = "deny" // where the chains of isolated pods end
	holdChain = "hold" // of pods whose labels are not known yet
)

// writeAll replaces the table in the kernel by this one, in one transaction: there is no moment without.
func (t *table) writeAll(tx *knftables.Transaction, on network) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	t.forgetKernel()
	t.told()
	t.writeSets(tx)
	on.writeBase(tx)
	t.writeChains(tx)
	t.writeElements(tx)
}

// write brings the kernel's table from where it was at the last call to where this one is.
func (t *table) write(tx *knftables.Transaction) {
	t.told()
	t.writeSets(tx)
	t.writeChains(tx)
	t.writeElements(tx)
	t.stale = append(t.stale, t.dropped...)
	t.dropped = nil
}

// sweep deletes what nothing refers to any more, some time after the write that took the last reference away: older
// kernels free elements late, and refuse to delete a chain until then.
func (t *table) sweep(tx *knftables.Transaction) {
	isChain := func(name string) bool { return strings.HasPrefix(name, "i-") || strings.HasPrefix(name, "e-") }
	for _, name := range t.stale {
		if isChain(name) {
			tx.Flush(&knftables.Chain{Name: name})
		}
	}
	for _, name := range t.stale {
		if isChain(name) {
			tx.Delete(&knftables.Chain{Name: name})
		} else {
			tx.Delete(&knftables.Set{Name: name})
		}
	}
	t.stale = nil
}

func (t *table) writeSets(tx *knftables.Transaction) {
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		s := t.sets[name]
		switch {
		case s.written && s.refill:
			tx.Flush(&knftables.Set{Name: name})
		case s.written:
		case s.verdict:
			tx.Add(&knftables.Map{Name: name, Type: s.kind + " : verdict"})
		default:
			tx.Add(&knftables.Set{Name: name, Type: s.kind})
		}
	}
}

func (t *table) writeChains(tx *knftables.Transaction) {
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		c := t.chains[name]
		if c.written {
			continue
		}
		c.written = true
		tx.Add(&knftables.Chain{Name: name})
		for _, r := range c.rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: r.text()})
		}
		tx.Add(&knftables.Rule{Chain: name, Rule: "goto " + denyChain})
	}
}

// writeElements deletes first: an element whose verdict changes is deleted and added.
func (t *table) writeElements(tx *knftables.Transaction) {
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		s := t.sets[name]
		if !s.written || s.refill {
			for _, e := range sorted(s.elems) {
				tx.Add(s.element(name, e, s.elems[e]))
			}
			s.written, s.refill, s.changed = true, false, map[elem]content{}
			continue
		}
		changed := sorted(s.changed)
		for _, e := range changed {
			if was := s.changed[e]; was.there && s.content(e) != was {
				tx.Delete(s.element(name, e, was.verdict))
			}
		}
		for _, e := range changed {
			if now := s.content(e); now.there && now != s.changed[e] {
				tx.Add(s.element(name, e, now.verdict))
			}
		}
		clear(s.changed)
	}
}

func (s *set) content(e elem) content {
	verdict, there := s.elems[e]
	return content{there, verdict}
}

func (s *set) element(name string, e elem, verdict string) *knftables.Element {
	if s.verdict {
		return &knftables.Element{Map: name, Key: e.key(), Value: []string{verdict}}
	}
	return &knftables.Element{Set: name, Key: e.key()}
}

// sorted makes transactions alike that do the same.
func sorted[V any](elems map[elem]V) []elem {
	return slices.SortedFunc(maps.Keys(elems), func(x, y elem) int {
		return cmp.Or(x.a.Compare(y.a), x.b.Compare(y.b), cmp.Compare(x.proto, y.proto), cmp.Compare(x.port, y.port))
	})
}

// network is the pods'.
type network struct {
	prefixes []netip.Prefix // of the whole cluster
	bridge   string         // of the pods of this node
}

// writeBase writes what depends on no policy.
func (n network) writeBase(tx *knftables.Transaction) {
	families := familiesOf(n.prefixes)
	rule := func(chain, format string, args ...any) {
		tx.Add(&knftables.Rule{Chain: chain, Rule: fmt.Sprintf(format, args...)})
	}
	tx.Add(&knftables.Counter{Name: "denied"})
	for _, chain := range []string{denyChain, holdChain} {
		tx.Add(&knftables.Chain{Name: chain})
		// Neighbour discovery of pods of one node passes this hook as well, and is part of the link, not of traffic.
		rule(chain, "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert, "+
			"mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } return")
		for _, f := range families {
			rule(chain, "%[1]s saddr . %[1]s daddr @%[2]s return", f.ip(), familySet(selfSet, f)) // through a Service of its own
		}
		rule(chain, "counter name \"denied\"")
	}
	rule(holdChain, "drop")
	// A pod that was made just now is not known everywhere yet. Its packets are dropped, so that it tries again.
	for _, p := range n.prefixes {
		f := familyOf(p.Addr())
		rule(denyChain, "%[1]s saddr %[2]s %[1]s saddr != @%[3]s drop", f.ip(), p.Masked(), familySet(podsSet, f))
		rule(denyChain, "%[1]s daddr %[2]s %[1]s daddr != @%[3]s drop", f.ip(), p.Masked(), familySet(podsSet, f))
	}
	// Between pods of one node, a reset leaves by the bridge without the Service's address being put back, and nobody
	// takes it for an answer; an ICMP error goes through the host.
	rule(denyChain, "meta l4proto tcp ct state new ct status dnat reject with icmpx admin-prohibited")
	// A reset also ends connections that were allowed once, and unlike ICMP errors the kernel limits no rate of them.
	rule(denyChain, "meta l4proto tcp reject with tcp reset")
	rule(denyChain, "reject with icmpx admin-prohibited")

	tx.Add(&knftables.Chain{
		Name: "forward", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.ForwardHook),
		// Before the firewalls of others; it makes no difference to what passes, as a drop anywhere wins.
		Priority: knftables.PtrTo(knftables.BaseChainPriority("filter - 5")), Policy: knftables.PtrTo(knftables.AcceptPolicy),
	})
	rule("forward", "ct direction reply ct state established,related accept")
	rule("forward", "ct state related accept")
	// Pods of one node have addresses that nobody gave them, and no policy can name.
	for _, field := range []string{"saddr", "daddr"} {
		rule("forward", "iifname %[1]s oifname %[1]s ip6 %[2]s fe80::/10 goto %[3]s", n.bridge, field, denyChain)
	}
	for _, f := range families {
		rule("forward", "%s saddr vmap @%s", f.ip(), verdictMap(egress, f))
		rule("forward", "%s daddr vmap @%s", f.ip(), verdictMap(ingress, f))
	}
}

// familiesOf are the address families of the pod network, IPv4 first.
func familiesOf(prefixes []netip.Prefix) []family {
	var out []family
	for _, p := range prefixes {
		if f := familyOf(p.Addr()); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}
