package networkpolicy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// profile is a chain with the rules of all policies that select a pod, for one direction. Pods that the same policies select share it.
type profile struct {
	chain string
	rules []rule
	pods  int
}

// assign sets the profiles of a sandbox by the policies that select its pod.
func (e *engine) assign(a *attachment) {
	isolated := false
	for d := range directions {
		p := e.profileFor(a, d)
		e.setProfile(a, d, p)
		isolated = isolated || p != nil
	}
	for _, addr := range a.addrs {
		e.setSelfPair(addr, isolated)
	}
}

// setSelfPair adds or removes the pair that allows an isolated pod to reach itself.
func (e *engine) setSelfPair(addr netip.Addr, isolated bool) {
	pair := elem{a: addr, b: addr}
	switch {
	case isolated == e.selfPairs[addr]:
	case isolated:
		e.selfPairs[addr] = true
		e.table.put(familySet(selfSet, familyOf(addr)), pair, "")
	default:
		delete(e.selfPairs, addr)
		e.table.remove(familySet(selfSet, familyOf(addr)), pair)
	}
}

// setProfile changes the profile of a sandbox; nil is none.
func (e *engine) setProfile(a *attachment, d direction, p *profile) {
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

// holdProfile is the profile of pods whose labels are not known.
func (e *engine) holdProfile() *profile {
	if e.profiles[holdChain] == nil {
		e.profiles[holdChain] = &profile{chain: holdChain}
	}
	return e.profiles[holdChain]
}

// profileFor returns the profile of a sandbox; nil if everything is allowed.
func (e *engine) profileFor(a *attachment, d direction) *profile {
	var sets []*ruleset
	for _, name := range slices.Sorted(maps.Keys(e.policies[a.namespace])) {
		p := e.policies[a.namespace][name]
		if p.allowed[d] == nil {
			continue
		}
		if !a.known {
			return e.holdProfile()
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
		if slices.ContainsFunc(s.rules, rule.allowsAll) {
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

// acquire counts a pod of a profile, and creates its chain and the sets of its rules for the first.
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

// release undoes acquire.
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

// isolatedDirections returns in which directions policies of a namespace isolate pods.
func (e *engine) isolatedDirections(namespace string) (in [directions]bool) {
	for _, p := range e.policies[namespace] {
		for d := range directions {
			in[d] = in[d] || p.allowed[d] != nil
		}
	}
	return in
}

// isolated counts the sandboxes that policies select.
func (e *engine) isolated() (n int) {
	for _, a := range e.sandboxes {
		if a.profile != [directions]*profile{} {
			n++
		}
	}
	return n
}
