package servicelb

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// snapshot is the input of a plan.
type snapshot struct {
	services  []*corev1.Service // of type LoadBalancer
	nodes     []*corev1.Node
	endpoints map[types.NamespacedName]places // of Services with externalTrafficPolicy Local
	lost      map[string]bool                 // nodes that do not answer pings
	nodePorts map[port]nodePort               // ports that Services have as NodePorts
	external  map[claim]nodePort              // ports of externalIPs
	pools     []pool
	unusable  unusable                // addresses that no Service gets
	since     map[portQuery]time.Time // queries without an answer, and when each was made first
	now       time.Time
}

// nodePort is the Service that has a port as its NodePort, or a port of an external address.
type nodePort struct {
	service types.UID
	text    string // for messages
}

// answerTimeout is how long a plan waits for a node's answer about ports. An answer usually takes a few milliseconds, more on a
// busy node. After that the ports count as free, because a node of an earlier version never answers; a later answer still counts.
const answerTimeout = 5 * time.Second

// mostAsked is how many ports the query of a node may have. It stands in two annotations of the Node, 9 bytes a port, which has room for 256 KiB in all.
const mostAsked = 5000

// portQuery asks whether a port is free on a node.
type portQuery struct {
	node string
	port port
}

// plan is the result of planning.
type plan struct {
	outcomes []outcome                // one for each Service that this package serves
	asked    map[string]map[port]bool // by node, the ports to query
	open     []portQuery              // queries without an answer
	serving  map[string]struct{}      // nodes that serve a Service, or would if they were not lost
	grants   bool                     // a Service gets a port or an address that it does not have yet
	announce map[string]struct{}      // nodes that may announce addresses of pools
}

// host is a Node, parsed once for a plan.
type host struct {
	*corev1.Node
	addrs  []address
	answer answer
	about  map[port]bool // the ports that the answer is about
}

// request is a Service, parsed once for a plan.
type request struct {
	*corev1.Service
	ports []port
	has   map[netip.Addr]map[port]bool // by its status
}

// placement is a Service on one of the nodes that can serve it.
type placement struct {
	service *request
	node    *host
	addrs   []address
	rank    rank
	refused []refusal // the ports that the Service does not get there
	waits   bool      // an answer of the node is awaited
	// unchecked says that the node did not answer in time.
	unchecked bool
	// crowded says that the query of the node has no room for the Service's ports.
	crowded bool
}

// rank orders placements: an earlier decision wins over a later request. Decisions are stored in the status of Services.
type rank int

const (
	settled rank = iota // the Service has the address with all its ports
	partly              // it has the address, and requests further ports
	wanted
)

// claim is a port of an address, which only one Service can have.
type claim struct {
	addr netip.Addr
	port port
}

// plan decides about all Services at once. It does not depend on the order of the objects in the snapshot.
func (in snapshot) plan(reserved []Reserved) plan {
	p := plan{asked: map[string]map[port]bool{}, serving: map[string]struct{}{}, announce: map[string]struct{}{}}
	nodes, own := in.read()
	selected := anySelected(in.nodes)
	pooled := in.allocate(own, nodes)
	var all []*placement
	byService := map[types.UID][]*placement{}
	why := map[types.UID]candidates{}
	for _, s := range own {
		if s.DeletionTimestamp != nil {
			continue
		}
		if got := pooled[s.UID]; got != nil {
			p.grants = p.grants || got.isNew(s)
			for _, n := range in.announcers(s.Service, selected) {
				p.announce[n] = struct{}{}
			}
			continue
		}
		if isGateway(s.Service) { // it gets addresses of servers, from others
			continue
		}
		c := in.candidates(s, nodes, selected)
		why[s.UID] = c
		for _, n := range c.able {
			p.serving[n.Name] = struct{}{}
		}
		addrs := published(s.Service, c.alive)
		for _, n := range c.alive {
			if len(addrs[n.Name]) == 0 {
				continue
			}
			st := &placement{service: s, node: n, addrs: addrs[n.Name]}
			st.rank = rankOf(st)
			all = append(all, st)
			byService[s.UID] = append(byService[s.UID], st)
			st.crowded = !p.ask(n.Name, s.ports)
		}
	}
	slices.SortStableFunc(all, func(a, b *placement) int { return cmp.Compare(a.rank, b.rank) }) // they are sorted by age already
	l := allocation{taken: map[claim]*request{}, listed: map[claim][]*request{}, reserved: reserved, in: in}
	for _, s := range own {
		l.note(s)
	}
	for _, st := range all {
		p.open = append(p.open, l.judge(st)...)
		p.grants = p.grants || st.rank != settled && len(st.refused) == 0
	}
	for _, s := range own {
		if got := pooled[s.UID]; got != nil {
			p.outcomes = append(p.outcomes, pooledOutcome(s, got))
			continue
		}
		p.outcomes = append(p.outcomes, outcomeOf(s, byService[s.UID], why[s.UID], in.now))
	}
	return p
}

// ask adds ports to the query of a node, if it has room for all of them.
func (p *plan) ask(node string, ports []port) bool {
	asked := p.asked[node]
	more := slices.DeleteFunc(slices.Clone(ports), func(q port) bool { return asked[q] })
	if len(asked)+len(more) > mostAsked {
		return false
	}
	if asked == nil {
		asked = map[port]bool{}
		p.asked[node] = asked
	}
	for _, q := range more {
		asked[q] = true
	}
	return true
}

// read returns the nodes sorted by name, and the Services of this package sorted by age.
func (in snapshot) read() (nodes []*host, own []*request) {
	addresses := undisputed(in.nodes)
	for _, n := range in.nodes {
		h := &host{Node: n, addrs: addresses[n.Name]}
		h.answer, h.about = answerOf(n)
		nodes = append(nodes, h)
	}
	slices.SortFunc(nodes, func(a, b *host) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range in.services {
		if !serves(s) || foreign(s, nodes) {
			continue
		}
		d := &request{Service: s, ports: portsOf(s), has: map[netip.Addr]map[port]bool{}}
		for _, i := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(i.IP); err == nil {
				d.has[a] = granted(i)
			}
		}
		own = append(own, d)
	}
	slices.SortFunc(own, func(a, b *request) int { return older(a.Service, b.Service) })
	return nodes, own
}

// older orders Services by age, and Services of the same second by name.
func older(a, b *corev1.Service) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}

// candidates are the nodes for a Service.
type candidates struct {
	able  []*host           // nodes that can serve if they are not lost
	alive []*host           // those of able that are not lost
	not   map[string]string // why the others cannot, by node
	idle  bool              // the Service needs nodes with endpoints, and there is none
}

func (in snapshot) candidates(s *request, nodes []*host, selected bool) candidates {
	where := in.endpoints[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]
	c := candidates{not: map[string]string{}, idle: isLocal(s.Service) && where.none()}
	var silent []*host
	for _, n := range nodes {
		reason := unsuitable(n.Node, s.Service, selected)
		if reason == "" && kube.NodeReadiness(n.Node) != corev1.ConditionTrue {
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
	if len(c.alive) == 0 { // if every node is silent, this server may be cut off; Kubernetes' own node conditions decide
		c.alive = silent
	}
	return c
}

// entryOf returns the entry of an address in a Service's status.
func entryOf(s *corev1.Service, a netip.Addr) (corev1.LoadBalancerIngress, bool) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(i.IP); err == nil && ip == a {
			return i, true
		}
	}
	return corev1.LoadBalancerIngress{}, false
}

// granted returns the ports that an entry of a status lists. Entries of other load balancers list none.
func granted(i corev1.LoadBalancerIngress) map[port]bool {
	out := map[port]bool{}
	for _, p := range i.Ports {
		out[port{p.Port, protocolOf(p.Protocol)}] = true
	}
	return out
}

func rankOf(st *placement) rank {
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

// foreign reports whether another load balancer has assigned the Service's addresses: there are some, and they are neither
// from this package nor addresses of nodes.
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
