package servicelb

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// snapshot is all that a plan depends on.
type snapshot struct {
	services  []*corev1.Service // of type LoadBalancer
	nodes     []*corev1.Node
	endpoints map[types.NamespacedName]places // of Services that are sent to nodes with endpoints only
	lost      map[string]bool                 // nodes that give no sign of life
	nodePorts map[port]nodePort               // ports that Services have as NodePorts
	since     map[question]time.Time          // open questions, and when each was asked first
	now       time.Time
}

// nodePort says whose NodePort a port is.
type nodePort struct {
	service types.UID
	text    string // in words
}

// patience is how long a node has to say whether ports are free: usually a few milliseconds, more where it is busy. One
// that does not, because it is of an earlier version, is taken at its silence; what it says later counts.
const patience = 5 * time.Second

// question is what a plan has to know of a node.
type question struct {
	node string
	port port
}

// plan is what is to be done.
type plan struct {
	outcomes []outcome           // one for each Service that is ours
	asked    map[string][]port   // by node, those that are to be asked about
	open     []question          // to which there is no answer
	serving  map[string]struct{} // nodes that serve, or would if they were alive
}

// host is a Node, read once for a plan.
type host struct {
	*corev1.Node
	addrs []address
	told  answer
	about map[port]bool // what the answer is about
}

// demand is a Service, read once for a plan.
type demand struct {
	*corev1.Service
	ports []port
	has   map[netip.Addr]map[port]bool // by its status
}

// site is a Service on one of the nodes that may serve it.
type site struct {
	service *demand
	node    *host
	addrs   []address
	rank    rank
	refused []holding // why it may not
	waits   bool      // it is not known yet whether it may
	// unchecked says that the node did not say in time whether its ports are free.
	unchecked bool
}

// rank says who keeps a port: a decision that was made stays, whatever comes later. What was decided stands in the
// status of Services, and so it survives everything.
type rank int

const (
	settled rank = iota // the Service has the address with all its ports
	partly              // it has the address, and wants further ports
	wanted
)

// claim is what only one Service can have.
type claim struct {
	addr netip.Addr
	port port
}

// plan decides about all Services at once. It is the same for the same snapshot, in whatever order.
func (in snapshot) plan(reserved []Reserved) plan {
	p := plan{asked: map[string][]port{}, serving: map[string]struct{}{}}
	nodes, own := in.read()
	some := chosen(in.nodes)
	var all []*site
	byService := map[types.UID][]*site{}
	why := map[types.UID]candidates{}
	for _, s := range own {
		if s.DeletionTimestamp != nil {
			continue
		}
		c := in.candidates(s, nodes, some)
		why[s.UID] = c
		for _, n := range c.able {
			p.serving[n.Name] = struct{}{}
		}
		addrs := published(s.Service, c.alive)
		for _, n := range c.alive {
			if len(addrs[n.Name]) == 0 {
				continue
			}
			st := &site{service: s, node: n, addrs: addrs[n.Name]}
			st.rank = rankOf(st)
			all = append(all, st)
			byService[s.UID] = append(byService[s.UID], st)
			p.asked[n.Name] = append(p.asked[n.Name], s.ports...)
		}
	}
	slices.SortStableFunc(all, func(a, b *site) int { return cmp.Compare(a.rank, b.rank) }) // by age already
	l := ledger{taken: map[claim]*demand{}, listed: map[claim][]*demand{}, reserved: reserved, in: in}
	for _, s := range own {
		l.note(s)
	}
	for _, st := range all {
		p.open = append(p.open, l.judge(st)...)
	}
	for _, s := range own {
		p.outcomes = append(p.outcomes, outcomeOf(s, byService[s.UID], why[s.UID]))
	}
	return p
}

// read returns the nodes by name, and the Services that are ours by age.
func (in snapshot) read() (nodes []*host, own []*demand) {
	for _, n := range in.nodes {
		h := &host{Node: n, addrs: nodeAddresses(n)}
		h.told, h.about = answerOf(n)
		nodes = append(nodes, h)
	}
	slices.SortFunc(nodes, func(a, b *host) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range in.services {
		if !ours(s) || foreign(s, nodes) {
			continue
		}
		d := &demand{Service: s, ports: portsOf(s), has: map[netip.Addr]map[port]bool{}}
		for _, i := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(i.IP); err == nil {
				d.has[a] = granted(i)
			}
		}
		own = append(own, d)
	}
	slices.SortFunc(own, func(a, b *demand) int { return older(a.Service, b.Service) })
	return nodes, own
}

// older orders Services by age; those of the same second by name.
func older(a, b *corev1.Service) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}

// candidates are the nodes for a Service.
type candidates struct {
	able  []*host           // they would serve if they were alive
	alive []*host           // of these
	not   map[string]string // why the others do not, by node
	idle  bool              // no node has an endpoint, where that counts
}

func (in snapshot) candidates(s *demand, nodes []*host, some bool) candidates {
	where := in.endpoints[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]
	c := candidates{not: map[string]string{}, idle: isLocal(s.Service) && where.none()}
	var silent []*host
	for _, n := range nodes {
		reason := unfit(n.Node, s.Service, some)
		if reason == "" && !isReady(n.Node) {
			reason = "it is not Ready"
		}
		if reason == "" && isLocal(s.Service) && !where.none() && !where.at(n.Name) {
			reason = noEndpoint
		}
		if reason != "" {
			c.not[n.Name] = reason
			continue
		}
		c.able = append(c.able, n)
		if in.lost[n.Name] {
			silent = append(silent, n)
			continue
		}
		c.alive = append(c.alive, n)
	}
	if len(c.alive) == 0 { // who hears nobody may be deaf; the rest of the control plane is to decide
		c.alive = silent
	}
	return c
}

// entryOf returns what a Service's status says of an address.
func entryOf(s *corev1.Service, a netip.Addr) (corev1.LoadBalancerIngress, bool) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(i.IP); err == nil && ip == a {
			return i, true
		}
	}
	return corev1.LoadBalancerIngress{}, false
}

// granted are the ports that were decided about in a status: each entry lists them. Entries of other balancers do not.
func granted(i corev1.LoadBalancerIngress) map[port]bool {
	out := map[port]bool{}
	for _, p := range i.Ports {
		out[port{p.Port, protocolOf(p.Protocol)}] = true
	}
	return out
}

func rankOf(st *site) rank {
	r := wanted
	for _, a := range st.addrs {
		have, listed := st.service.has[a.Addr]
		if !listed {
			continue
		}
		for _, p := range st.service.ports {
			if !have[p] {
				return partly
			}
		}
		r = settled
	}
	return r
}

// foreign reports whether another balancer has given the Service its addresses: there are some, and they are neither
// ours nor those of nodes.
func foreign(s *corev1.Service, nodes []*host) bool {
	if len(s.Status.LoadBalancer.Ingress) == 0 || condition(s, readyCondition) != nil {
		return false
	}
	for _, n := range nodes {
		for _, a := range n.addrs {
			if _, listed := entryOf(s, a.Addr); listed {
				return false
			}
		}
	}
	return true
}
