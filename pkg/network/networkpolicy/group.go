package networkpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// pod has the fields of a Pod that matter for policies.
type pod struct {
	metav1.ObjectMeta // name, namespace, UID, resource version and labels only
	local             bool
	unlabelledMirror  bool         // of a static pod
	addrs             []netip.Addr // from its status; ignored for pods of this node
	ports             []namedPort
}

func (p *pod) uid() types.UID { return p.UID }

// namedPort is a port to which a container gives a name.
type namedPort struct {
	portName
	number uint16
}

// member is a pod as a peer, with the sets that it is in.
type member struct {
	pod   *pod // nil after removePod
	elems map[elem]bool
	in    map[*group]bool
	ports []namedPort
}

// group is a set of the addresses of selected pods.
type group struct {
	spec       *groupSpec
	users      int // the number of rules that use it
	countedSet countedSet
}

// namedPorts is the set of the ports of one name of all pods.
type namedPorts struct {
	users      int
	countedSet countedSet
}

// newPod converts a Pod.
func newPod(p *corev1.Pod, node string) *pod {
	out := &pod{local: p.Spec.NodeName == node}
	out.Name, out.Namespace, out.ResourceVersion, out.Labels = p.Name, p.Namespace, p.ResourceVersion, p.Labels
	uid := string(p.UID)
	if static, ok := p.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		uid = cmp.Or(static, uid) // the kubelet's UID of a static pod; the object has another
		out.unlabelledMirror = len(p.Labels) == 0
	}
	out.UID = podKey(p.Namespace, p.Name, uid)
	for _, ip := range p.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			out.addrs = append(out.addrs, addr)
		}
	}
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, port := range c.Ports {
			if port.Name != "" {
				out.ports = append(out.ports, namedPort{portName{port.Name, protocolOf(port.Protocol)}, uint16(port.ContainerPort)})
			}
		}
	}
	return out
}

// podKey identifies a pod. It contains namespace and name because users can write the annotation of static pods: it must not make a
// pod pass for one of another namespace.
func podKey(namespace, name, uid string) types.UID {
	return types.UID(namespace + "/" + name + "/" + uid)
}

// refresh replaces a pod by an equal one, as far as policies are concerned. It reports whether p is equal to the known pod.
func (e *engine) refresh(p *pod) bool {
	m := e.pods[p.UID]
	if m == nil || !maps.Equal(m.pod.Labels, p.Labels) || m.pod.local != p.local ||
		!slices.Equal(m.pod.addrs, p.addrs) || !slices.Equal(m.pod.ports, p.ports) {
		return false
	}
	m.pod = p // releases the old object
	return true
}

// addresses returns the addresses of a pod. Those of a local pod are its sandboxes', not its status'.
func (e *engine) addresses(p *pod) map[elem]bool {
	out := map[elem]bool{}
	for _, a := range e.sandboxesOf[p.UID] {
		for _, addr := range a.addrs {
			out[elem{a: addr}] = true
		}
	}
	if !p.local && len(out) == 0 {
		for _, addr := range p.addrs {
			out[elem{a: addr}] = true
		}
	}
	return out
}

// updateSets adds a pod to the sets that select it, and removes it from the others.
func (e *engine) updateSets(m *member) {
	now := member{pod: m.pod, elems: map[elem]bool{}, in: map[*group]bool{}}
	if m.pod != nil {
		now.elems, now.ports = e.addresses(m.pod), m.pod.ports
		for _, g := range e.groups {
			if e.selects(g.spec, m.pod) {
				now.in[g] = true
			}
		}
	}
	was := *m
	*m = now
	if maps.Equal(was.elems, now.elems) && maps.Equal(was.in, now.in) && slices.Equal(was.ports, now.ports) {
		return
	}
	e.count(now, countedSet.add)
	e.count(was, countedSet.remove)
}

// count calls count for each element of a pod in each of its sets.
func (e *engine) count(m member, count func(countedSet, elem)) {
	for addr := range m.elems {
		count(e.allPods, addr)
		for g := range m.in {
			count(g.countedSet, addr)
		}
		for _, p := range m.ports {
			if set := e.named[p.portName]; set != nil {
				count(set.countedSet, portElem(addr, p))
			}
		}
	}
}

func portElem(addr elem, p namedPort) elem { return elem{a: addr.a, proto: p.proto, port: p.number} }

// selects reports whether a pod belongs to a group. A namespaceSelector never selects a namespace whose labels are not known yet,
// because a selector can match the absence of a label. For the same reason it selects no mirror without labels: a node can make one in any namespace,
// with an address of its own, and the API server leaves out its labels (see pkg/cluster/nodeadmission).
func (e *engine) selects(spec *groupSpec, p *pod) bool {
	if p.unlabelledMirror {
		return false
	}
	for _, peer := range spec.peers {
		if !peer.crossNamespace() && peer.namespace != p.Namespace || !peer.pods.Matches(labels.Set(p.Labels)) {
			continue
		}
		if !peer.crossNamespace() {
			return true
		}
		if l, known := e.namespaces[p.Namespace]; known && peer.namespaces.Matches(l) {
			return true
		}
	}
	return false
}

// acquireGroup counts a rule that uses a group, and creates the group for the first.
func (e *engine) acquireGroup(spec *groupSpec) {
	g := e.groups[spec.key]
	if g != nil {
		g.users++
		return
	}
	name := func(f family) string { return groupSet(spec.key, f) }
	g = &group{spec: spec, users: 1, countedSet: countedSet{e.table, name, map[elem]int{}}}
	e.groups[spec.key] = g
	for _, f := range e.families {
		e.table.addSet(name(f), addrType(f))
	}
	for _, m := range e.pods {
		if e.selects(spec, m.pod) {
			m.in[g] = true
			for addr := range m.elems {
				g.countedSet.add(addr)
			}
		}
	}
}

// releaseGroup undoes acquireGroup.
func (e *engine) releaseGroup(spec *groupSpec) {
	g := e.groups[spec.key]
	if g.users--; g.users > 0 {
		return
	}
	delete(e.groups, spec.key)
	for _, m := range e.pods {
		delete(m.in, g)
	}
	for _, f := range e.families {
		e.table.dropSet(groupSet(spec.key, f))
	}
}

// acquirePorts counts a rule that uses the ports of a name, and creates their set for the first.
func (e *engine) acquirePorts(p portName) {
	if n := e.named[p]; n != nil {
		n.users++
		return
	}
	name := func(f family) string { return namedSet(p, f) }
	n := &namedPorts{users: 1, countedSet: countedSet{e.table, name, map[elem]int{}}}
	e.named[p] = n
	for _, f := range e.families {
		e.table.addSet(name(f), addrType(f)+" . inet_proto . inet_service")
	}
	for _, m := range e.pods {
		for _, port := range m.ports {
			if port.portName != p {
				continue
			}
			for addr := range m.elems {
				n.countedSet.add(portElem(addr, port))
			}
		}
	}
}

// releasePorts undoes acquirePorts.
func (e *engine) releasePorts(p portName) {
	n := e.named[p]
	if n.users--; n.users > 0 {
		return
	}
	delete(e.named, p)
	for _, f := range e.families {
		e.table.dropSet(namedSet(p, f))
	}
}
