package networkpolicy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// profile is a chain: what the policies that select a pod allow in one direction together. Pods that the same policies
// select share it.
type profile struct {
	chain string
	rules []rule
	pods  int
}

// assign subjects a pod of this node to the policies that select it.
func (e *engine) assign(a *attachment) {
	isolated := false
	for d := range directions {
		p := e.profileFor(a, d)
		e.subject(a, d, p)
		isolated = isolated || p != nil
	}
	for _, addr := range a.addrs {
		e.isolate(addr, isolated)
	}
}

// isolate keeps the pairs by which an isolated pod is allowed to reach itself.
func (e *engine) isolate(addr netip.Addr, isolated bool) {
	pair := elem{a: addr, b: addr}
	switch {
	case isolated == e.self[addr]:
	case isolated:
		e.self[addr] = true
		e.table.put(familySet(selfSet, familyOf(addr)), pair, "")
	default:
		delete(e.self, addr)
		e.table.remove(familySet(selfSet, familyOf(addr)), pair)
	}
}

// subject changes the profile of a pod of this node; nil is none.
func (e *engine) subject(a *attachment, d direction, p *profile) {
	old := a.profile[d]
	if p == old {
		return
	}
	a.profile[d] = p
	if p != nil {
		e.acquire(p)
	}
	for _, addr := range a.addrs {
		name, key := verdictMap(d, familyOf(addr)), elem{a: addr}
		if p != nil {
			e.table.put(name, key, "jump "+p.chain)
		} else {
			e.table.remove(name, key)
		}
	}
	if old != nil {
		e.release(old)
	}
}

// hold is the profile of pods whose labels are not known.
func (e *engine) hold() *profile {
	if e.profiles[holdChain] == nil {
		e.profiles[holdChain] = &profile{chain: holdChain}
	}
	return e.profiles[holdChain]
}

// profileFor is what a pod of this node is subject to; nil is nothing, as all is allowed.
func (e *engine) profileFor(a *attachment, d direction) *profile {
	var sets []*ruleset
	for _, name := range slices.Sorted(maps.Keys(e.policies[a.namespace])) {
		p := e.policies[a.namespace][name]
		if p.allowed[d] == nil {
			continue
		}
		if !a.known {
			return e.hold()
		}
		if p.subject.Matches(a.labels) {
			sets = append(sets, p.allowed[d])
		}
	}
	if len(sets) == 0 {
		return nil
	}
	slices.SortFunc(sets, func(x, y *ruleset) int { return strings.Compare(x.key, y.key) })
	sets = slices.CompactFunc(sets, func(x, y *ruleset) bool { return x.key == y.key })
	keys := make([]string, len(sets))
	var rules []rule
	for i, s := range sets {
		if slices.ContainsFunc(s.rules, rule.bare) {
			return nil
		}
		keys[i] = s.key
		rules = append(rules, s.rules...)
	}
	chain := d.String()[:1] + "-" + digest(keys...)
	if e.profiles[chain] == nil {
		return &profile{chain: chain, rules: rules}
	}
	return e.profiles[chain]
}

// acquire counts one more pod of a profile, and makes its chain and what that refers to for the first.
func (e *engine) acquire(p *profile) {
	p.pods++
	if p.pods > 1 || p.chain == holdChain {
		return
	}
	e.profiles[p.chain] = p
	for _, r := range p.rules {
		if r.group != nil {
			e.acquireGroup(r.group)
		}
		if r.named != "" {
			e.acquirePorts(portName{r.named, r.proto})
		}
	}
	e.table.addChain(p.chain, p.rules)
}

// release is acquire's opposite.
func (e *engine) release(p *profile) {
	p.pods--
	if p.pods > 0 || p.chain == holdChain {
		return
	}
	delete(e.profiles, p.chain)
	e.table.dropChain(p.chain)
	for _, r := range p.rules {
		if r.group != nil {
			e.releaseGroup(r.group)
		}
		if r.named != "" {
			e.releasePorts(portName{r.named, r.proto})
		}
	}
}

// isolating reports in which directions policies of a namespace isolate pods.
func (e *engine) isolating(namespace string) (in [directions]bool) {
	for _, p := range e.policies[namespace] {
		for d := range directions {
			in[d] = in[d] || p.allowed[d] != nil
		}
	}
	return in
}

// isolated is how many pods of this node are subject to policies.
func (e *engine) isolated() (n int) {
	for _, a := range e.local {
		if a.profile != [directions]*profile{} {
			n++
		}
	}
	return n
}
