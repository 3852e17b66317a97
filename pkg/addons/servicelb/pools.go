package servicelb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Annotations of Services, MetalLB's, under its present and its former name.
var (
	wantedAddresses = [...]string{"metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"}
	wantedPool      = [...]string{"metallb.io/address-pool", "metallb.universe.tf/address-pool"}
	sharingKey      = [...]string{"metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip"}
)

// noAddress is the reason of the condition if a Service gets no address of a pool.
const noAddress = "NoAddress"

// annotation returns the first of some annotations that a Service has.
func annotation(s *corev1.Service, keys [2]string) string {
	if text := s.Annotations[keys[0]]; text != "" {
		return strings.TrimSpace(text)
	}
	return strings.TrimSpace(s.Annotations[keys[1]])
}

// assignment are the addresses of pools that a Service gets.
type assignment struct {
	addrs []netip.Addr
	pools []string // their names
	// problem says why addresses are missing, "" if none are.
	problem string
}

// allocator assigns addresses of pools while a plan is made.
type allocator struct {
	in     snapshot
	nodes  map[netip.Addr]string     // by the nodes' own addresses
	users  map[netip.Addr][]*request // what is assigned so far
	listed map[netip.Addr][]*request // Services with the address in their status, whether they keep it or not
	out    map[types.UID]*assignment
}

// allocate assigns addresses to the Services that get one of a pool; the others are not in the result. What a Service has it keeps; the rest
// goes to the oldest first.
func (in snapshot) allocate(own []*request, nodes []*host) map[types.UID]*assignment {
	l := &allocator{in: in, nodes: map[netip.Addr]string{}, users: map[netip.Addr][]*request{}, listed: map[netip.Addr][]*request{}, out: map[types.UID]*assignment{}}
	if len(in.pools) == 0 {
		return l.out
	}
	for _, n := range nodes {
		for _, a := range n.addrs {
			l.nodes[a.Addr] = n.Name
		}
	}
	var pooled []*request
	for _, s := range own {
		for a := range s.has {
			l.listed[a] = append(l.listed[a], s)
		}
		if s.DeletionTimestamp == nil && l.isPooled(s.Service) {
			pooled = append(pooled, s)
			l.out[s.UID] = &assignment{}
		}
	}
	for _, s := range pooled {
		l.keep(s)
	}
	for _, s := range pooled {
		l.fill(s)
	}
	return l.out
}

// isPooled reports whether a Service gets addresses of pools: those of class coracle.io/node do not, nor do others if no pool is for all, unless
// they ask for one.
func (l *allocator) isPooled(s *corev1.Service) bool {
	if s.Spec.LoadBalancerClass != nil || isGateway(s) && asksForNodes(s, l.nodes) {
		return false
	}
	if annotation(s, wantedAddresses) != "" || annotation(s, wantedPool) != "" {
		return true
	}
	if ip, err := netip.ParseAddr(s.Spec.LoadBalancerIP); err == nil {
		return l.nodes[ip] == "" && (poolOf(l.in.pools, ip) != nil || l.automatic(s))
	}
	return l.automatic(s)
}

// automatic reports whether a Service can have an address of some pool without asking for it.
func (l *allocator) automatic(s *corev1.Service) bool {
	return slices.ContainsFunc(l.in.pools, func(p pool) bool { return !p.Manual && p.admits(s) })
}

// poolOf returns the pool of an address, nil if there is none.
func poolOf(pools []pool, a netip.Addr) *pool {
	for i := range pools {
		if slices.ContainsFunc(pools[i].Ranges, func(r config.Range) bool { return r.Contains(a) }) {
			return &pools[i]
		}
	}
	return nil
}

// requested returns the addresses that a Service asks for. problem is not "" if one of them is no address.
func requested(s *corev1.Service) (out []netip.Addr, problem string) {
	text := annotation(s, wantedAddresses)
	if text == "" {
		text = s.Spec.LoadBalancerIP
	}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		a, err := netip.ParseAddr(one)
		if err != nil {
			return nil, fmt.Sprintf("it asks for %q, which is no address", one)
		}
		if a.Zone() != "" {
			return nil, fmt.Sprintf("it asks for %q, which is an address with a zone", one)
		}
		a = a.Unmap()
		if slices.ContainsFunc(out, func(b netip.Addr) bool { return a != b && family(a) == family(b) }) {
			return nil, fmt.Sprintf("it asks for more than one %s address", family(a))
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, ""
}

// keep assigns a Service what it has by its status, as far as it still may.
func (l *allocator) keep(s *request) {
	asked, problem := requested(s.Service)
	if problem != "" {
		return
	}
	for _, a := range addressesIn(s.Service) {
		if (len(asked) == 0 || slices.Contains(asked, a)) && slices.Contains(s.Spec.IPFamilies, family(a)) && !l.hasFamily(s, family(a)) && l.unfit(s, a, len(asked) > 0) == "" {
			l.take(s, a)
		}
	}
}

// addressesIn are the addresses in the status of a Service, in its order.
func addressesIn(s *corev1.Service) (out []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (l *allocator) take(s *request, a netip.Addr) {
	l.users[a] = append(l.users[a], s)
	got := l.out[s.UID]
	got.addrs = append(got.addrs, a)
	if p := poolOf(l.in.pools, a); !slices.Contains(got.pools, p.Name) {
		got.pools = append(got.pools, p.Name)
	}
}

func (l *allocator) hasFamily(s *request, f corev1.IPFamily) bool {
	return slices.ContainsFunc(l.out[s.UID].addrs, func(a netip.Addr) bool { return family(a) == f })
}

// fill assigns a Service what it lacks.
func (l *allocator) fill(s *request) {
	var problems []string
	asked, problem := requested(s.Service)
	if problem != "" {
		l.out[s.UID].problem = capped(problem)
		return
	}
	for _, a := range asked {
		switch {
		case slices.Contains(l.out[s.UID].addrs, a):
		case !slices.Contains(s.Spec.IPFamilies, family(a)):
			problems = append(problems, fmt.Sprintf("it asks for %s, but has no %s", a, family(a)))
		case l.unfit(s, a, true) != "":
			problems = append(problems, fmt.Sprintf("it asks for %s, but %s", a, l.unfit(s, a, true)))
		default:
			l.take(s, a)
		}
	}
	for _, f := range s.Spec.IPFamilies {
		if len(asked) > 0 || l.hasFamily(s, f) {
			continue
		}
		if a, ok := l.free(s, f); ok {
			l.take(s, a)
		} else {
			problems = append(problems, l.exhausted(s, f))
		}
	}
	l.out[s.UID].problem = capped(strings.Join(problems, "; "))
}

// exhausted says why there is no address of a family.
func (l *allocator) exhausted(s *request, f corev1.IPFamily) string {
	name := annotation(s.Service, wantedPool)
	switch {
	case name == "":
		return fmt.Sprintf("no pool has a free %s address", f)
	case !slices.ContainsFunc(l.in.pools, func(p pool) bool { return p.Name == name }):
		return fmt.Sprintf("it asks for the pool %s, which does not exist", name)
	}
	return fmt.Sprintf("the pool %s has no free %s address", name, f)
}

// mostTried limits how many addresses of pools are looked at for a Service.
const mostTried = 1 << 16

// free returns the first address of a family that a Service can have.
func (l *allocator) free(s *request, f corev1.IPFamily) (netip.Addr, bool) {
	tried := 0
	name := annotation(s.Service, wantedPool)
	for _, p := range l.in.pools {
		if name != p.Name && (name != "" || p.Manual) || !p.admits(s.Service) {
			continue
		}
		for _, r := range p.Ranges {
			for a := r.First; family(r.First) == f && r.Contains(a); a = a.Next() {
				if l.unfit(s, a, false) == "" {
					return a, true
				}
				if tried++; tried > mostTried {
					return netip.Addr{}, false
				}
			}
		}
	}
	return netip.Addr{}, false
}

// unfit says why a Service cannot have an address, "" if it can. asked says that the Service names the address.
func (l *allocator) unfit(s *request, a netip.Addr, asked bool) string {
	p, name := poolOf(l.in.pools, a), annotation(s.Service, wantedPool)
	switch {
	case p == nil:
		return "it is in no pool"
	case name != "" && p.Name != name:
		return fmt.Sprintf("it is in the pool %s, not in %s", p.Name, name)
	case !p.admits(s.Service):
		return fmt.Sprintf("the pool %s is for other Services", p.Name)
	case p.avoidBuggy && a.Is4() && (a.As4()[3] == 0 || a.As4()[3] == 255):
		return fmt.Sprintf("the pool %s avoids addresses that end so", p.Name)
	case p.Manual && name == "" && !asked:
		return fmt.Sprintf("the pool %s is for Services that ask for it", p.Name)
	case l.nodes[a] != "":
		return "it is an address of node " + l.nodes[a]
	case l.in.unusable.why(a) != "":
		return "it is " + l.in.unusable.why(a)
	}
	for _, port := range s.ports {
		if other, has := l.in.external[claim{a, port}]; has && other.service != s.UID {
			return fmt.Sprintf("port %s of it is held by %s", port, other.text)
		}
	}
	for _, other := range l.users[a] {
		if other.UID != s.UID && !canShare(s, other) {
			return fmt.Sprintf("it belongs to %s %s/%s; two share an address if they have other ports and the same value of the annotation %s",
				kindOf(other.Service), other.Namespace, other.Name, sharingKey[0])
		}
	}
	for _, other := range l.listed[a] { // one that is about to lose it: its update triggers the next plan
		if other.UID != s.UID && !slices.Contains(l.users[a], other) && !canShare(s, other) {
			return fmt.Sprintf("%s %s/%s still has it", kindOf(other.Service), other.Namespace, other.Name)
		}
	}
	return ""
}

// canShare reports whether two Services may have the same address: they both say so, have no port in common, and the same nodes can serve both.
func canShare(a, b *request) bool {
	key := annotation(a.Service, sharingKey)
	if key == "" || key != annotation(b.Service, sharingKey) {
		return false
	}
	if slices.ContainsFunc(a.ports, func(p port) bool { return slices.Contains(b.ports, p) }) {
		return false
	}
	return !isLocal(a.Service) && !isLocal(b.Service) || isLocal(a.Service) && isLocal(b.Service) && maps.Equal(a.Spec.Selector, b.Spec.Selector)
}
