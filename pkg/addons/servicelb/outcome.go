package servicelb

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// readyCondition of a Service says whether it has addresses, and marks it as served by this package. Upstream's condition
// corev1.LoadBalancerPortsError is set while ports are refused on some node.
const readyCondition = kube.LoadBalancerCondition

// Reasons of the conditions, and of the corresponding events.
const (
	assigned    = "Assigned"
	portTaken   = "PortTaken"
	noNodes     = "NoNodes"
	noEndpoints = "NoEndpoints"
	waiting     = "Waiting"
	// changing is set by the admission plugin; the message is toCome with the ports that the Service is about to have.
	changing = "PortsChanging"
	toCome   = "the Service is about to have the ports "
)

// changeTimeout is how long a Service gets no addresses after the admission plugin withdrew some, unless its ports change before.
const changeTimeout = 5 * time.Second

// isChanging reports whether the plugin withdrew addresses for ports that the Service does not have yet.
func isChanging(s *corev1.Service, now time.Time) bool {
	c := condition(s, readyCondition)
	if c == nil || c.Reason != changing || now.Sub(c.LastTransitionTime.Time) > changeTimeout {
		return false
	}
	ports := portsOf(s)
	return slices.ContainsFunc(parsePorts(strings.TrimPrefix(c.Message, toCome)), func(p port) bool { return !slices.Contains(ports, p) })
}

// noEndpoint is why a node does not serve a Service whose externalTrafficPolicy is Local.
const noEndpoint = "it has no endpoint"

// outcome is the decision about one Service.
type outcome struct {
	service *corev1.Service
	// release says that the Service is being deleted, so that its finalizer has to go.
	release bool
	// hold: the status is not written yet, because a node's answer or a change of the ports is pending and no listed address must
	// be withdrawn.
	hold    bool
	ingress []corev1.LoadBalancerIngress
	ready   metav1.Condition
	refused *metav1.Condition
	// shadows are ports that a process on a node began to use after the Service got them.
	shadows []shadow
	// pooled: the addresses are of pools; problem says why some are missing.
	pooled  bool
	problem string
}

func outcomeOf(req *request, placements []*placement, c candidates, now time.Time) outcome {
	o := outcome{service: req.Service, release: req.DeletionTimestamp != nil}
	if o.release {
		return o
	}
	var addrs []address
	var nodes, unchecked []string
	unchanged := map[address]bool{} // entries that stay as they are
	waits := false
	for _, p := range placements {
		waits = waits || p.waits && len(p.refused) == 0
		if len(p.refused) > 0 || p.waits && p.rank == wanted {
			continue
		}
		nodes = append(nodes, p.node.Name)
		if p.unchecked {
			unchecked = append(unchecked, p.node.Name)
		}
		for _, a := range p.addrs {
			if _, listed := req.has[a.Addr]; p.waits && !listed {
				continue
			}
			addrs = append(addrs, a)
			unchanged[a] = p.waits
		}
		o.shadows = append(o.shadows, shadows(p)...)
	}
	sortAddresses(req.Service, addrs)
	for _, a := range slices.CompactFunc(addrs, func(a, b address) bool { return a.Addr == b.Addr }) {
		entry := entryFor(req.Service, a)
		if unchanged[a] {
			entry, _ = entryOf(req.Service, a.Addr)
		}
		o.ingress = append(o.ingress, entry)
	}
	o.hold = (waits || isChanging(req.Service, now)) && keepsAll(req.Service, addrs)
	o.refused = refusals(placements)
	o.ready = readiness(nodes, unchecked, o.refused, c)
	if len(nodes) == 0 && waits {
		o.ready.Reason, o.ready.Message = waiting, "nodes are asked whether its ports are free"
	}
	return o
}

// keepsAll reports whether addrs contains all present addresses of a Service, so that none has to be removed.
func keepsAll(s *corev1.Service, addrs []address) bool {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if !slices.ContainsFunc(addrs, func(a address) bool { return a.String() == i.IP }) {
			return false
		}
	}
	return true
}

// entryFor returns the entry of an address for a status. It lists the ports, so that a port that is added later is recognized as new.
func entryFor(s *corev1.Service, a address) corev1.LoadBalancerIngress {
	vip := corev1.LoadBalancerIPModeVIP
	entry := corev1.LoadBalancerIngress{IP: a.String(), IPMode: &vip}
	for _, p := range portsOf(s) {
		entry.Ports = append(entry.Ports, corev1.PortStatus{Port: p.number, Protocol: p.protocol})
	}
	return entry
}

// shadow is a port of a Service that a process on a node uses as well.
type shadow struct {
	portQuery
	text string // for messages
}

// shadows returns the ports of a placement that a process on the node uses although the Service has them.
func shadows(p *placement) (out []shadow) {
	for _, port := range p.service.ports {
		if by := p.node.answer.Held[port.String()]; by != "" && p.granted(port) {
			out = append(out, shadow{
				portQuery{p.node.Name, port},
				fmt.Sprintf("port %s of node %s is in use by %s as well, which gets nothing from outside while the Service has the port", port, p.node.Name, by),
			})
		}
	}
	return out
}

// refusals returns the condition that lists the refused ports, nil if there are none.
func refusals(placements []*placement) *metav1.Condition {
	nodes := map[string][]string{}
	for _, p := range placements {
		for _, r := range p.refused {
			text := fmt.Sprintf("port %s is held by %s", r.port, r.holder)
			nodes[text] = append(nodes[text], p.node.Name)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	var texts []string
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		texts = append(texts, text+" on "+list("node", "nodes", nodes[text]))
	}
	return &metav1.Condition{Type: corev1.LoadBalancerPortsError, Status: metav1.ConditionTrue, Reason: portTaken, Message: strings.Join(texts, "; ")}
}

// readiness returns the condition that says whether and where the Service is served.
func readiness(nodes, unchecked []string, refused *metav1.Condition, c candidates) metav1.Condition {
	ready := metav1.Condition{Type: readyCondition, Status: metav1.ConditionFalse}
	switch {
	case len(nodes) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, assigned, "served by "+list("node", "nodes", nodes)
		if c.idle {
			ready.Message += ", which have no endpoint"
		}
		if len(unchecked) > 0 {
			ready.Message += notChecked + listAll("node", "nodes", unchecked) // the next leader reads it
		}
	case refused != nil:
		ready.Reason, ready.Message = portTaken, refused.Message
	case len(c.alive) > 0:
		ready.Reason, ready.Message = noNodes, "no node has an address of the Service's IP families, or the address that it asks for"
	default:
		ready.Reason, ready.Message = noNodes, "there is no node"
		byReason := map[string][]string{}
		for name, reason := range c.not {
			byReason[reason] = append(byReason[reason], name)
			if reason == noEndpoint {
				ready.Reason = noEndpoints
			}
		}
		var texts []string
		for _, reason := range slices.Sorted(maps.Keys(byReason)) {
			texts = append(texts, list("node", "nodes", byReason[reason])+": "+reason)
		}
		if len(texts) > 0 {
			ready.Message = "no node may serve it: " + strings.Join(texts, "; ")
		}
	}
	return ready
}

// notChecked introduces the nodes that did not answer in a condition's message. uncheckedBefore parses it: do not change the text.
const notChecked = "; whether its ports are in use was not checked on "

// uncheckedBefore returns the queries that were unanswered when an earlier leader granted the ports, from the conditions of
// the Services. Their answers still count.
func uncheckedBefore(services []*corev1.Service, now time.Time) map[portQuery]time.Time {
	since := map[portQuery]time.Time{}
	for _, s := range services {
		ready := condition(s, readyCondition)
		if ready == nil {
			continue
		}
		_, names, _ := strings.Cut(ready.Message, notChecked)
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ' ' || r == ',' }) {
			for _, p := range portsOf(s) {
				since[portQuery{name, p}] = now // words that are not names of nodes match no query
			}
		}
	}
	return since
}

// list joins the first few names and counts the rest.
func list(one, several string, names []string) string {
	const most = 5
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if n := len(names); n > most {
		return fmt.Sprintf("%s %s and %d more", several, strings.Join(names[:most], ", "), n-most)
	}
	return listAll(one, several, names)
}

// listAll joins all names.
func listAll(one, several string, names []string) string {
	if len(names) == 1 {
		return one + " " + names[0]
	}
	return several + " " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// condition returns a condition of a Service, or nil.
func condition(s *corev1.Service, kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, kind)
}

// mostProblem is the largest size of a problem, which quotes what users write.
const mostProblem = 1 << 10

func capped(problem string) string {
	if len(problem) <= mostProblem {
		return problem
	}
	return strings.ToValidUTF8(problem[:mostProblem-3], "") + "..."
}
