package networkpolicy

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// pod is what policies have to know of a pod.
type pod struct {
	metav1.ObjectMeta // name, namespace, UID, resource version and labels only
	local             bool
	addrs             []netip.Addr // as its status says; not used of pods of this node
	ports             []namedPort
}

func (p *pod) uid() types.UID { return p.UID }

// namedPort is a port to which a container gives a name.
type namedPort struct {
	portName
	number uint16
}

// member is a pod as a peer: what it is an element of.
type member struct {
	pod   *pod // nil when it is gone
	elems map[elem]bool
	in    map[*group]bool
	ports []namedPort
}

// group is a set of the addresses of selected pods.
type group struct {
	spec  *groupSpec
	users int // rules
	tally tally
}

// namedPorts is the set of all pods' ports of one name.
type namedPorts struct {
	users int
	tally tally
}

// newPod returns what is needed of a pod. It is nil for a pod of the host's network, which policies are not about.
func newPod(p *corev1.Pod, node string) *pod {
	out := &pod{local: p.Spec.NodeName == node}
	out.Name, out.Namespace, out.ResourceVersion, out.Labels = p.Name, p.Namespace, p.ResourceVersion, p.Labels
	uid := string(p.UID)
	if static := p.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		uid = static // what the kubelet calls the pod; the other is the object's
	}
	out.UID = identity(p.Namespace, p.Name, uid)
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

// identity is what a pod is known by here. Its name is in it, because the annotation of static pods is for anybody to
// write: it must not make a pod of one namespace be taken for one of another.
func identity(namespace, name, uid string) types.UID {
	return types.UID(namespace + "/" + name + "/" + uid)
}

// refresh takes a pod that differs in nothing which matters from what is known of it, and reports whether it is one.
func (e *engine) refresh(p *pod) bool {
	m := e.pods[p.UID]
	if m == nil || !maps.Equal(m.pod.Labels, p.Labels) || m.pod.local != p.local ||
		!slices.Equal(m.pod.addrs, p.addrs) || !slices.Equal(m.pod.ports, p.ports) {
		return false
	}
	m.pod = p // the old one is garbage
	return true
}

// addresses are a pod's. What a pod of this node has is what its sandboxes were given.
func (e *engine) addresses(p *pod) map[elem]bool {
	out := map[elem]bool{}
	for _, a := range e.attached[p.UID] {
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

// place brings a pod into the sets that it belongs to, and out of the others.
func (e *engine) place(m *member) {
	now := member{pod: m.pod, elems: map[elem]bool{}, in: map[*group]bool{}}
	if m.pod != nil {
		now.elems, now.ports = e.addresses(m.pod), m.pod.ports
		for _, list := range [][]*group{e.near[m.pod.Namespace], e.wide} {
			for _, g := range list {
				if e.selects(g.spec, m.pod) {
					now.in[g] = true
				}
			}
		}
	}
	was := *m
	*m = now
	if maps.Equal(was.elems, now.elems) && maps.Equal(was.in, now.in) && slices.Equal(was.ports, now.ports) {
		return
	}
	e.count(now, tally.add)
	e.count(was, tally.remove)
}

// count counts a pod's elements of all sets that it is in.
func (e *engine) count(m member, count func(tally, elem)) {
	for addr := range m.elems {
		count(e.known, addr)
		for g := range m.in {
			count(g.tally, addr)
		}
		for _, p := range m.ports {
			if set := e.named[p.portName]; set != nil {
				count(set.tally, portElem(addr, p))
			}
		}
	}
}

func portElem(addr elem, p namedPort) elem { return elem{a: addr.a, proto: p.proto, port: p.number} }

// selects reports whether a pod belongs to a group. A namespace whose labels are not known is selected by nothing that
// looks at labels: a selector may be true for the lack of one.
func (e *engine) selects(spec *groupSpec, p *pod) bool {
	for _, peer := range spec.peers {
		if !peer.wide() && peer.namespace != p.Namespace || !peer.pods.Matches(labels.Set(p.Labels)) {
			continue
		}
		if !peer.wide() {
			return true
		}
		if l, known := e.namespaces[p.Namespace]; known && peer.namespaces.Matches(l) {
			return true
		}
	}
	return false
}

// acquireGroup counts one more rule that uses a group, and makes the group for the first.
func (e *engine) acquireGroup(spec *groupSpec) {
	g := e.groups[spec.key]
	if g != nil {
		g.users++
		return
	}
	name := func(f family) string { return groupSet(spec.key, f) }
	g = &group{spec: spec, users: 1, tally: tally{e.table, name, map[elem]int{}}}
	e.groups[spec.key] = g
	for _, f := range e.families {
		e.table.addSet(name(f), addrType(f))
	}
	if spec.wide() {
		e.wide = append(e.wide, g)
	} else {
		e.near[spec.namespace()] = append(e.near[spec.namespace()], g)
	}
	for _, m := range e.candidates(spec) {
		if e.selects(spec, m.pod) {
			m.in[g] = true
			for addr := range m.elems {
				g.tally.add(addr)
			}
		}
	}
}

// releaseGroup is acquireGroup's opposite.
func (e *engine) releaseGroup(spec *groupSpec) {
	g := e.groups[spec.key]
	if g.users--; g.users > 0 {
		return
	}
	delete(e.groups, spec.key)
	other := func(x *group) bool { return x == g }
	if spec.wide() {
		e.wide = slices.DeleteFunc(e.wide, other)
	} else if list := slices.DeleteFunc(e.near[spec.namespace()], other); len(list) > 0 {
		e.near[spec.namespace()] = list
	} else {
		delete(e.near, spec.namespace())
	}
	for _, m := range e.candidates(spec) {
		delete(m.in, g)
	}
	for _, f := range e.families {
		e.table.dropSet(groupSet(spec.key, f))
	}
}

// candidates are the pods that a group may select.
func (e *engine) candidates(spec *groupSpec) map[types.UID]*member {
	if spec.wide() {
		return e.pods
	}
	return e.populace[spec.namespace()]
}

// acquirePorts counts one more rule that uses the ports of a name, and makes their set for the first.
func (e *engine) acquirePorts(p portName) {
	if n := e.named[p]; n != nil {
		n.users++
		return
	}
	name := func(f family) string { return namedSet(p, f) }
	n := &namedPorts{users: 1, tally: tally{e.table, name, map[elem]int{}}}
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
				n.tally.add(portElem(addr, port))
			}
		}
	}
}

// releasePorts is acquirePorts' opposite.
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
