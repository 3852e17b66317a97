package networkpolicy

import (
	"maps"
	"net/netip"
	"time"

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
	since                    time.Time  // when the pod came, if it was seen to
	labels                   labels.Set // of the pod as last seen: what is left of it stays subject to the policies
	known                    bool       // labels are
	profile                  [directions]*profile
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
