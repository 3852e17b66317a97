package networkpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// elem is an element of a set or map: an address, two addresses, or an address with a protocol and port.
type elem struct {
	a, b  netip.Addr
	proto string
	port  uint16
}

// key is the element as nft writes it.
func (e elem) key() []string {
	switch {
	case e.b.IsValid():
		return []string{e.a.String(), e.b.String()}
	case e.proto != "":
		return []string{e.a.String(), e.proto, fmt.Sprint(e.port)}
	}
	return []string{e.a.String()}
}

// table is the desired content of the kernel's table, with the differences from the last write.
type table struct {
	sets   map[string]*set
	chains map[string]*chain // immutable: the name is a digest of the rules

	dropped []string // sets and chains that the kernel has and that were dropped since the last write
	stale   []string // sets and chains that the kernel has and nothing refers to

	// Addresses of removed elements that the kernel may still have: removed since the last write, and in the present one.
	gone, beingRemoved map[netip.Addr]bool
}

// set is a set, or a map to chains.
type set struct {
	kind    string // the nft type of the elements
	verdict bool   // whether it is a map to verdicts
	elems   map[elem]string
	// changed has the elements that may differ from the kernel's, with the kernel's content.
	changed map[elem]content
	written bool // whether the kernel has the set
	refill  bool // whether the kernel has a set of this name with other elements
}

// content is an element as the kernel has it.
type content struct {
	there   bool
	verdict string
}

type chain struct {
	rules   []rule
	written bool
}

// The sets that always exist, once for each address family.
const (
	podsSet = "pods" // addresses of all known pods
	selfSet = "self" // pairs of an isolated pod's address with itself
)

func verdictMap(d direction, f family) string { return fmt.Sprintf("%s%d", d, f) }

func newTable(families []family) *table {
	t := &table{sets: map[string]*set{}, chains: map[string]*chain{}, gone: map[netip.Addr]bool{}, beingRemoved: map[netip.Addr]bool{}}
	for _, f := range families {
		t.addSet(familySet(podsSet, f), addrType(f))
		t.addSet(familySet(selfSet, f), addrType(f)+" . "+addrType(f))
		for d := range directions {
			t.addSet(verdictMap(d, f), addrType(f))
			t.sets[verdictMap(d, f)].verdict = true
		}
	}
	return t
}

func familySet(name string, f family) string { return fmt.Sprintf("%s%d", name, f) }

func addrType(f family) string { return fmt.Sprintf("ipv%d_addr", f) }

// forgetKernel notes that the kernel has no table, so that the next write includes everything.
func (t *table) forgetKernel() {
	t.dropped, t.stale = nil, nil
	for _, s := range t.sets {
		s.written, s.refill, s.changed = false, false, map[elem]content{}
	}
	for _, c := range t.chains {
		c.written = false
	}
}

// addSet adds an empty set.
func (t *table) addSet(name, kind string) {
	s := &set{kind: kind, elems: map[elem]string{}, changed: map[elem]content{}}
	if t.undrop(name) {
		s.written, s.refill = true, true
	}
	t.sets[name] = s
}

// undrop reports whether the kernel still has a dropped set or chain of that name, which is then in use again.
func (t *table) undrop(name string) bool {
	for _, list := range []*[]string{&t.dropped, &t.stale} {
		if i := slices.Index(*list, name); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// dropSet removes a set that no chain refers to.
func (t *table) dropSet(name string) {
	if s := t.sets[name]; s != nil && s.written {
		t.dropped = append(t.dropped, name)
	}
	delete(t.sets, name)
}

func (t *table) addChain(name string, rules []rule) {
	t.chains[name] = &chain{rules: rules, written: t.undrop(name)}
}

// dropChain removes a chain that no map refers to.
func (t *table) dropChain(name string) {
	if c := t.chains[name]; c != nil && c.written {
		t.dropped = append(t.dropped, name)
	}
	delete(t.chains, name)
}

// put adds an element to a set, or changes its verdict in a map.
func (t *table) put(name string, e elem, verdict string) {
	s := t.sets[name]
	if s == nil {
		return // the cluster does not have this address family
	}
	s.touch(e)
	s.elems[e] = verdict
}

// remove removes an element of a set.
func (t *table) remove(name string, e elem) {
	s := t.sets[name]
	if s == nil {
		return
	}
	s.touch(e)
	delete(s.elems, e)
	t.gone[e.a] = true // which is also e.b, if there is one
}

// mayHold reports whether the kernel may still have a removed element with one of the addresses.
func (t *table) mayHold(addrs []netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return t.gone[a] || t.beingRemoved[a] })
}

// beginWrite moves the removed addresses to the present write. Until that has succeeded the kernel may or may not have them.
func (t *table) beginWrite() {
	maps.Copy(t.beingRemoved, t.gone)
	clear(t.gone)
}

// touch remembers the kernel's content of an element before its first change.
func (s *set) touch(e elem) {
	if _, known := s.changed[e]; known || !s.written || s.refill {
		return // remembered already, or all elements will be written
	}
	verdict, there := s.elems[e]
	s.changed[e] = content{there, verdict}
}

// countedSet is a set whose elements are counted: two pods may have one address for a moment.
type countedSet struct {
	table *table
	set   func(family) string
	n     map[elem]int
}

func (t countedSet) add(e elem) {
	if t.n[e]++; t.n[e] == 1 {
		t.table.put(t.set(familyOf(e.a)), e, "")
	}
}

func (t countedSet) remove(e elem) {
	if t.n[e]--; t.n[e] == 0 {
		delete(t.n, e)
		t.table.remove(t.set(familyOf(e.a)), e)
	}
}
