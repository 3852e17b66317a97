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

// tableName is the name of both tables.
const tableName = bridgefilter.Table

// The chains that always exist.
const (
	denyChain = "deny" // where the chains of isolated pods end: counts, then drops or rejects
	holdChain = "hold" // of pods whose labels are not known yet: counts and drops
)

// writeAll replaces the kernel's table in one transaction, so that policies are in force at every moment.
func (t *table) writeAll(tx *knftables.Transaction, on network) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	t.forgetKernel()
	t.beginWrite()
	t.writeSets(tx)
	on.writeBase(tx)
	t.writeChains(tx)
	t.writeElements(tx)
}

// write adds the changes since the last write to tx.
func (t *table) write(tx *knftables.Transaction) {
	t.beginWrite()
	t.writeSets(tx)
	t.writeChains(tx)
	t.writeElements(tx)
	t.stale = append(t.stale, t.dropped...)
	t.dropped = nil
}

// sweep deletes unused sets and chains. It runs some time after the write that removed the last reference: older kernels free map
// elements late, and refuse to delete a chain until then.
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

// writeElements deletes before it adds: an element whose verdict changes is deleted and added again.
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

// sorted returns elements in a fixed order, so that equal changes make equal transactions.
func sorted[V any](elems map[elem]V) []elem {
	return slices.SortedFunc(maps.Keys(elems), func(x, y elem) int {
		return cmp.Or(x.a.Compare(y.a), x.b.Compare(y.b), cmp.Compare(x.proto, y.proto), cmp.Compare(x.port, y.port))
	})
}

// network is the pod network.
type network struct {
	prefixes []netip.Prefix // of all pods of the cluster
	bridge   string         // of the pods of this node
}

// writeBase writes the chains and rules that do not depend on policies.
func (n network) writeBase(tx *knftables.Transaction) {
	families := familiesOf(n.prefixes)
	rule := func(chain, format string, args ...any) {
		tx.Add(&knftables.Rule{Chain: chain, Rule: fmt.Sprintf(format, args...)})
	}
	tx.Add(&knftables.Counter{Name: "denied"})
	for _, chain := range []string{denyChain, holdChain} {
		tx.Add(&knftables.Chain{Name: chain})
		// Neighbour discovery between pods of one node passes this hook as well. It belongs to the link, not to the traffic.
		rule(chain, "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert, "+
			"mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } return")
		for _, f := range families {
			rule(chain, "%[1]s saddr . %[1]s daddr @%[2]s return", f.ip(), familySet(selfSet, f)) // a pod reaches itself through its Service
		}
		rule(chain, "counter name \"denied\"")
	}
	rule(holdChain, "drop")
	// A new pod is not known on every node yet. Its packets are dropped instead of rejected, so that it tries again.
	for _, p := range n.prefixes {
		f := familyOf(p.Addr())
		rule(denyChain, "%[1]s saddr %[2]s %[1]s saddr != @%[3]s drop", f.ip(), p.Masked(), familySet(podsSet, f))
		rule(denyChain, "%[1]s daddr %[2]s %[1]s daddr != @%[3]s drop", f.ip(), p.Masked(), familySet(podsSet, f))
	}
	// Between pods of one node, a reset leaves by the bridge with the address of the pod instead of the Service's, so the client
	// ignores it. An ICMP error passes the host, which translates it.
	rule(denyChain, "meta l4proto tcp ct state new ct status dnat reject with icmpx admin-prohibited")
	// A reset also ends connections that were allowed before. The kernel does not limit the rate of resets as it does for ICMP errors.
	rule(denyChain, "meta l4proto tcp reject with tcp reset")
	rule(denyChain, "reject with icmpx admin-prohibited")

	tx.Add(&knftables.Chain{
		Name: "forward", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.ForwardHook),
		// Before other firewalls. The order does not change which packets pass, as a drop in any chain is final.
		Priority: knftables.PtrTo(knftables.BaseChainPriority("filter - 5")), Policy: knftables.PtrTo(knftables.AcceptPolicy),
	})
	rule("forward", "ct direction reply ct state established,related accept")
	rule("forward", "ct state related accept")
	// Pods of one node also have link-local addresses, which no policy can select.
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
