package networkpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// elem is an element of a set or map: an address, or two, or an address with a port.
type elem struct {
	a, b  netip.Addr
	proto string
	port  uint16
}

// key is the element as nft has it.
func (e elem) key() []string {
	switch {
	case e.b.IsValid():
		return []string{e.a.String(), e.b.String()}
	case e.proto != "":
		return []string{e.a.String(), e.proto, fmt.Sprint(e.port)}
	}
	return []string{e.a.String()}
}

// table is what the kernel shall have, and what has changed since it was last told.
type table struct {
	sets   map[string]*set
	chains map[string]*chain // never change: their name is a digest of their content

	dropped []string // sets and chains that are gone since the last write, but not in the kernel
	stale   []string // those that the kernel has and nothing refers to any more

	// Addresses of elements that were taken out, before they are written and while they are: the kernel may have them.
	gone, telling map[netip.Addr]bool
}

// set is a set, or a map to chains.
type set struct {
	kind    string // nft's type of its elements
	verdict bool   // it is a map to verdicts
	elems   map[elem]string
	// changed are the elements that are other than in the kernel, perhaps, and what they are there.
	changed map[elem]content
	written bool // the kernel has the set
	refill  bool // it has one of this name with other elements
}

// content is what an element is in the kernel.
type content struct {
	there   bool
	verdict string
}

type chain struct {
	rules   []rule
	written bool
}

// The maps and sets that are always there. Each exists once for each family.
const (
	podsSet = "pods" // addresses of all pods that are known
	selfSet = "self" // address pairs of isolated pods with themselves
)

func verdictMap(d direction, f family) string { return fmt.Sprintf("%s%d", d, f) }

func newTable(families []family) *table {
	t := &table{sets: map[string]*set{}, chains: map[string]*chain{}, gone: map[netip.Addr]bool{}, telling: map[netip.Addr]bool{}}
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

// forgetKernel is for when the kernel has no table any more, or has to get all of it.
func (t *table) forgetKernel() {
	t.dropped, t.stale = nil, nil
	for _, s := range t.sets {
		s.written, s.refill, s.changed = false, false, map[elem]content{}
	}
	for _, c := range t.chains {
		c.written = false
	}
}

// addSet makes an empty set.
func (t *table) addSet(name, kind string) {
	s := &set{kind: kind, elems: map[elem]string{}, changed: map[elem]content{}}
	if t.undrop(name) {
		s.written, s.refill = true, true
	}
	t.sets[name] = s
}

// undrop reports whether the kernel still has a set or chain of that name that was dropped.
func (t *table) undrop(name string) bool {
	for _, list := range []*[]string{&t.dropped, &t.stale} {
		if i := slices.Index(*list, name); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// dropSet forgets a set that no chain refers to.
func (t *table) dropSet(name string) {
	if s := t.sets[name]; s != nil && s.written {
		t.dropped = append(t.dropped, name)
	}
	delete(t.sets, name)
}

func (t *table) addChain(name string, rules []rule) {
	t.chains[name] = &chain{rules: rules, written: t.undrop(name)}
}

// dropChain forgets a chain that no map refers to.
func (t *table) dropChain(name string) {
	if c := t.chains[name]; c != nil && c.written {
		t.dropped = append(t.dropped, name)
	}
	delete(t.chains, name)
}

// put makes an element of a set, or changes its verdict in a map.
func (t *table) put(name string, e elem, verdict string) {
	s := t.sets[name]
	if s == nil {
		return // a family that the cluster does not have
	}
	s.touch(e)
	s.elems[e] = verdict
}

// remove takes an element out of a set.
func (t *table) remove(name string, e elem) {
	s := t.sets[name]
	if s == nil {
		return
	}
	s.touch(e)
	delete(s.elems, e)
	t.gone[e.a] = true
	if e.b.IsValid() {
		t.gone[e.b] = true
	}
}

// mayHold reports whether the kernel may have an element with one of the addresses that was taken out of its set.
func (t *table) mayHold(addrs []netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return t.gone[a] || t.telling[a] })
}

// told moves what was taken out to what is being written. What of it is in the kernel nobody knows until that is done.
func (t *table) told() {
	maps.Copy(t.telling, t.gone)
	clear(t.gone)
}

// touch remembers what the kernel has.
func (s *set) touch(e elem) {
	if _, known := s.changed[e]; known || !s.written || s.refill {
		return // all of its elements will be written
	}
	verdict, there := s.elems[e]
	s.changed[e] = content{there, verdict}
}

// tally counts how often something is an element: an address may be two pods' for a moment.
type tally struct {
	table *table
	set   func(family) string
	n     map[elem]int
}

func (t tally) add(e elem) {
	if t.n[e]++; t.n[e] == 1 {
		t.table.put(t.set(familyOf(e.a)), e, "")
	}
}

func (t tally) remove(e elem) {
	if t.n[e]--; t.n[e] == 0 {
		delete(t.n, e)
		t.table.remove(t.set(familyOf(e.a)), e)
	}
}
