package networkpolicy

import (
	"maps"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// engine computes the table that enforces the policies on this node from policies, namespaces and pods. It talks to neither the API
// nor the kernel, and is not safe for concurrent use.
type engine struct {
	families    []family
	namespaces  map[string]labels.Set
	policies    map[string]map[string]*policy // by namespace and name
	pods        map[types.UID]*member
	sandboxes   map[string]*attachment // pods of this node by sandbox
	sandboxesOf map[types.UID]map[string]*attachment
	owner       map[netip.Addr]*attachment
	groups      map[string]*group
	named       map[portName]*namedPorts
	profiles    map[string]*profile
	allPods     countedSet // addresses of all pods
	selfPairs   map[netip.Addr]bool
	table       *table
}

// attachment is a pod sandbox on this node.
type attachment struct {
	sandbox, namespace, name string
	uid                      types.UID
	addrs                    []netip.Addr
	since                    time.Time  // when this process saw the pod come; zero for pods of before
	labels                   labels.Set // of the pod as last seen: a sandbox stays subject to the policies when its Pod is deleted
	known                    bool       // whether labels are known
	profile                  [directions]*profile
}

func newEngine(families []family) *engine {
	e := &engine{
		families: families, namespaces: map[string]labels.Set{}, policies: map[string]map[string]*policy{},
		pods:      map[types.UID]*member{},
		sandboxes: map[string]*attachment{}, sandboxesOf: map[types.UID]map[string]*attachment{}, owner: map[netip.Addr]*attachment{},
		groups: map[string]*group{}, named: map[portName]*namedPorts{},
		profiles: map[string]*profile{}, selfPairs: map[netip.Addr]bool{}, table: newTable(families),
	}
	e.allPods = countedSet{e.table, func(f family) string { return familySet(podsSet, f) }, map[elem]int{}}
	return e
}

// setPolicy sets a new or changed policy. An error is about a part of the policy that cannot be read; that part allows nothing.
func (e *engine) setPolicy(p *networkingv1.NetworkPolicy) error {
	compiled, err := compile(p, e.families)
	if e.policies[p.Namespace] == nil {
		e.policies[p.Namespace] = map[string]*policy{}
	}
	e.policies[p.Namespace][p.Name] = compiled
	e.assignNamespace(p.Namespace)
	return err
}

// removePolicy removes a policy.
func (e *engine) removePolicy(namespace, name string) {
	delete(e.policies[namespace], name)
	if len(e.policies[namespace]) == 0 {
		delete(e.policies, namespace)
	}
	e.assignNamespace(namespace)
}

func (e *engine) assignNamespace(namespace string) {
	for _, a := range e.sandboxes {
		if a.namespace == namespace {
			e.assign(a)
		}
	}
}

// setNamespace sets the labels of a namespace.
func (e *engine) setNamespace(name string, l labels.Set) {
	if old, known := e.namespaces[name]; known && maps.Equal(old, l) {
		return
	}
	e.namespaces[name] = l
	e.updateNamespace(name)
}

func (e *engine) removeNamespace(name string) {
	delete(e.namespaces, name)
	e.updateNamespace(name)
}

func (e *engine) updateNamespace(name string) {
	for _, m := range e.pods {
		if m.pod.Namespace == name {
			e.updateSets(m)
		}
	}
}

// setPod sets a new or changed pod.
func (e *engine) setPod(p *pod) {
	m := e.pods[p.UID]
	if m == nil {
		m = &member{}
		e.pods[p.UID] = m
	}
	m.pod = p
	e.updateSets(m)
	for _, a := range e.sandboxesOf[p.UID] {
		a.labels, a.known = p.Labels, true
		e.assign(a)
	}
}

// removePod removes a pod as a peer of others. Its sandbox stays subject to the policies until detach.
func (e *engine) removePod(uid types.UID) {
	m := e.pods[uid]
	if m == nil {
		return
	}
	delete(e.pods, uid)
	m.pod = nil
	e.updateSets(m)
}

// attach adds a sandbox of this node that gets addresses, and detaches sandboxes that had them before. It reports whether the labels
// of the pod are known.
func (e *engine) attach(a *attachment) (known bool) {
	e.detach(a.sandbox)
	for _, addr := range a.addrs {
		if old := e.owner[addr]; old != nil {
			e.detach(old.sandbox)
		}
		e.owner[addr] = a
	}
	e.sandboxes[a.sandbox] = a
	if e.sandboxesOf[a.uid] == nil {
		e.sandboxesOf[a.uid] = map[string]*attachment{}
	}
	e.sandboxesOf[a.uid][a.sandbox] = a
	if m := e.pods[a.uid]; m != nil {
		a.labels, a.known = m.pod.Labels, true
		e.updateSets(m)
	}
	e.assign(a)
	return a.known
}

// detach removes a sandbox, if it is known.
func (e *engine) detach(sandbox string) {
	a := e.sandboxes[sandbox]
	if a == nil {
		return
	}
	delete(e.sandboxes, sandbox)
	delete(e.sandboxesOf[a.uid], sandbox)
	if len(e.sandboxesOf[a.uid]) == 0 {
		delete(e.sandboxesOf, a.uid)
	}
	for d := range directions {
		e.setProfile(a, d, nil)
	}
	for _, addr := range a.addrs {
		delete(e.owner, addr)
		e.setSelfPair(addr, false)
	}
	if m := e.pods[a.uid]; m != nil {
		e.updateSets(m)
	}
}

// forgetPeers removes all pods and namespaces, and what is known of the kernel's table. There are no policies when it is called.
func (e *engine) forgetPeers() {
	for uid := range e.pods {
		e.removePod(uid)
	}
	for name := range e.namespaces {
		e.removeNamespace(name)
	}
	e.table.forgetKernel()
}
