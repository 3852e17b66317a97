package servicelb

import (
	"fmt"
	"slices"
)

// allocation records which Service has which port of which address while a plan is made.
type allocation struct {
	taken map[claim]*request
	// listed are the Services that have the claim by their status, whether they keep it or not.
	listed   map[claim][]*request
	reserved []Reserved
	in       snapshot
}

// refusal is a port that a Service does not get on a node.
type refusal struct {
	port   port
	holder string // what has the port, for messages
}

// note records what a Service has by its status. Ports that it does not request any more are free, because kube-proxy goes
// by the Service's specification.
func (l *allocation) note(s *request) {
	for a, has := range s.has {
		for _, p := range s.ports {
			if has[p] {
				l.listed[claim{a, p}] = append(l.listed[claim{a, p}], s)
			}
		}
	}
}

// judge decides about one placement and returns the queries that have no answer yet.
func (l *allocation) judge(st *placement) (open []portQuery) {
	answer, about := st.node.answer, st.node.about
	if st.crowded && !slices.ContainsFunc(st.service.ports, st.granted) {
		st.refused = []refusal{{st.service.ports[0], fmt.Sprintf("other load balancers, which have %d ports of the node together: more are not asked for", mostAsked)}}
		return nil
	}
	var gets []port
	for _, p := range st.service.ports {
		q := portQuery{st.node.Name, p}
		since, tracked := l.in.since[q]
		late := tracked && l.in.now.Sub(since) >= answerTimeout
		held := answer.Held[p.String()]
		by := l.holder(st, p)
		switch {
		case by != "":
		case about[p] && held != "" && (!st.granted(p) || tracked): // tracked: it was granted before the node answered
			by = held
		case st.granted(p): // a process that uses it on the node came later
			gets = append(gets, p)
			if tracked && !about[p] {
				open, st.unchecked = append(open, q), true
			}
		case l.leaving(st, p):
			st.waits = true // the update of that Service triggers the next plan
		case about[p]:
			gets = append(gets, p)
		case late && held != "": // the node has said so without being asked
			by = held
		default:
			gets, open = append(gets, p), append(open, q)
			st.waits, st.unchecked = st.waits || !late, st.unchecked || late
		}
		if by != "" {
			st.refused = append(st.refused, refusal{p, by})
		}
	}
	if len(st.refused) > 0 { // kube-proxy serves all ports of a Service at an address, or none
		return nil
	}
	for _, p := range gets {
		for _, a := range st.addrs {
			l.taken[claim{a.Addr, p}] = st.service
		}
	}
	return open
}

// holder describes what has a port of a placement already, as far as the control plane knows; "" if nothing has. Coracle's
// own ports come first, so that no status can give them away.
func (l *allocation) holder(st *placement, p port) string {
	_, server := st.node.Labels[controlPlane]
	for _, r := range l.reserved {
		if int32(r.Port) == p.number && r.Protocol == p.protocol && (server || !r.ServersOnly) {
			return r.Holder
		}
	}
	for _, a := range st.addrs {
		if other := l.taken[claim{a.Addr, p}]; other != nil && other.UID != st.service.UID {
			return "Service " + other.Namespace + "/" + other.Name
		}
		if other, has := l.in.external[claim{a.Addr, p}]; has && other.service != st.service.UID && !st.granted(p) {
			return other.text
		}
	}
	if np := l.in.nodePorts[p]; np.service != st.service.UID && !st.granted(p) {
		return np.text
	}
	return ""
}

// granted reports whether the Service has a port on the node by its status.
func (st *placement) granted(p port) bool {
	for _, a := range st.addrs {
		if st.service.has[a.Addr][p] {
			return true
		}
	}
	return false
}

// leaving reports whether another Service that loses a port of the placement still has it by its status. The port must wait,
// because kube-proxy must not see two Services with one port of one address.
func (l *allocation) leaving(st *placement, p port) bool {
	for _, a := range st.addrs {
		for _, other := range l.listed[claim{a.Addr, p}] {
			if other.UID != st.service.UID {
				return true
			}
		}
	}
	return false
}
