package netpol

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// engine turns policies, namespaces and pods into the table that puts them in force on this node. It knows no API and no
// kernel, and is not for several goroutines at a time.
type engine struct {
	families   []family
	namespaces map[string]labels.Set
	policies   map[string]map[string]*policy // by namespace and name
	pods       map[types.UID]*member
	populace   map[string]map[types.UID]*member // pods by namespace
	local      map[string]*attachment           // pods of this node by sandbox
	attached   map[types.UID]map[string]*attachment
	owner      map[netip.Addr]*attachment
	groups     map[string]*group
	near       map[string][]*group // groups with pods of one namespace only, by namespace
	wide       []*group            // groups with pods of several
	named      map[portName]*namedPorts
	profiles   map[string]*profile
	known      tally // addresses of all pods
	self       map[netip.Addr]bool
	table      *table
}

// attachment is a pod sandbox on this node.
type attachment struct {
	sandbox, namespace, name string
	uid                      types.UID
	addrs                    []netip.Addr
	labels                   labels.Set // of the pod as last seen: what is left of it stays subject to the policies
	known                    bool       // labels are
	profile                  [directions]*profile
}

// profile is a chain: what the policies that select a pod allow in one direction together. Pods that the same policies
// select share it.
type profile struct {
	chain string
	rules []rule
	pods  int
}

func newEngine(families []family) *engine {
	e := &engine{
		families: families, namespaces: map[string]labels.Set{}, policies: map[string]map[string]*policy{},
		pods: map[types.UID]*member{}, populace: map[string]map[types.UID]*member{},
		local: map[string]*attachment{}, attached: map[types.UID]map[string]*attachment{}, owner: map[netip.Addr]*attachment{},
		groups: map[string]*group{}, near: map[string][]*group{}, named: map[portName]*namedPorts{},
		profiles: map[string]*profile{}, self: map[netip.Addr]bool{}, table: newTable(families),
	}
	e.known = tally{e.table, func(f family) string { return familySet(podsSet, f) }, map[elem]int{}}
	return e
}

// setPolicy takes a new or changed policy. An error is about the policy; what of it cannot be read allows nothing.
func (e *engine) setPolicy(p *networkingv1.NetworkPolicy) error {
	compiled, err := compile(p, e.families)
	if compiled == nil {
		return err
	}
	if e.policies[p.Namespace] == nil {
		e.policies[p.Namespace] = map[string]*policy{}
	}
	e.policies[p.Namespace][p.Name] = compiled
	e.assignNamespace(p.Namespace)
	return err
}

// removePolicy forgets a policy.
func (e *engine) removePolicy(namespace, name string) {
	delete(e.policies[namespace], name)
	if len(e.policies[namespace]) == 0 {
		delete(e.policies, namespace)
	}
	e.assignNamespace(namespace)
}

func (e *engine) assignNamespace(namespace string) {
	for _, a := range e.local {
		if a.namespace == namespace {
			e.assign(a)
		}
	}
}

// setNamespace takes a namespace's labels.
func (e *engine) setNamespace(name string, l labels.Set) {
	if old, known := e.namespaces[name]; known && maps.Equal(old, l) {
		return
	}
	e.namespaces[name] = l
	for _, m := range e.populace[name] {
		e.place(m)
	}
}

func (e *engine) removeNamespace(name string) {
	delete(e.namespaces, name)
	for _, m := range e.populace[name] {
		e.place(m)
	}
}

// setPod takes a new or changed pod.
func (e *engine) setPod(p *pod) {
	m := e.pods[p.UID]
	if m == nil {
		m = &member{}
		e.pods[p.UID] = m
		if e.populace[p.Namespace] == nil {
			e.populace[p.Namespace] = map[types.UID]*member{}
		}
		e.populace[p.Namespace][p.UID] = m
	}
	m.pod = p
	e.place(m)
	for _, a := range e.attached[p.UID] {
		a.labels, a.known = p.Labels, true
		e.assign(a)
	}
}

// removePod forgets a pod as a peer of others. Its sandbox stays subject to the policies until it is detached.
func (e *engine) removePod(uid types.UID) {
	m := e.pods[uid]
	if m == nil {
		return
	}
	delete(e.pods, uid)
	delete(e.populace[m.pod.Namespace], uid)
	if len(e.populace[m.pod.Namespace]) == 0 {
		delete(e.populace, m.pod.Namespace)
	}
	m.pod = nil
	e.place(m)
}

// attach takes a sandbox of this node that gets addresses. Whoever had them before has lost them. It reports whether the
// pod is known.
func (e *engine) attach(a *attachment) (known bool) {
	e.detach(a.sandbox)
	for _, addr := range a.addrs {
		if old := e.owner[addr]; old != nil {
			e.detach(old.sandbox)
		}
		e.owner[addr] = a
	}
	e.local[a.sandbox] = a
	if e.attached[a.uid] == nil {
		e.attached[a.uid] = map[string]*attachment{}
	}
	e.attached[a.uid][a.sandbox] = a
	if m := e.pods[a.uid]; m != nil {
		a.labels, a.known = m.pod.Labels, true
		e.place(m)
	}
	e.assign(a)
	return a.known
}

// detach forgets a sandbox, if it is there.
func (e *engine) detach(sandbox string) {
	a := e.local[sandbox]
	if a == nil {
		return
	}
	delete(e.local, sandbox)
	delete(e.attached[a.uid], sandbox)
	if len(e.attached[a.uid]) == 0 {
		delete(e.attached, a.uid)
	}
	for d := range directions {
		e.subject(a, d, nil)
	}
	for _, addr := range a.addrs {
		delete(e.owner, addr)
		e.isolate(addr, false)
	}
	if m := e.pods[a.uid]; m != nil {
		e.place(m)
	}
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

// forgetPeers forgets pods and namespaces. It is for when there are no policies.
func (e *engine) forgetPeers() {
	for uid := range e.pods {
		e.removePod(uid)
	}
	for name := range e.namespaces {
		e.removeNamespace(name)
	}
	e.table.forgetKernel()
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

// protocolOf is nft's name of a container port's protocol.
func protocolOf(p corev1.Protocol) string { return protocol(&p) }
