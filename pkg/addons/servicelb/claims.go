package servicelb

// ledger is who has which port of which address while a plan is made.
type ledger struct {
	taken map[claim]*demand
	// listed are the Services whose status says that they have it, whether they keep it or not.
	listed   map[claim][]*demand
	reserved []Reserved
	in       snapshot
}

// holding is a port that a Service does not get on a node.
type holding struct {
	port   port
	holder string // in words
}

// note enters what a Service has by its status. Ports that it does not want any more are nobody's: kube-proxy takes them
// from the Service's specification.
func (l *ledger) note(s *demand) {
	for a, has := range s.has {
		for _, p := range s.ports {
			if has[p] {
				l.listed[claim{a, p}] = append(l.listed[claim{a, p}], s)
			}
		}
	}
}

// judge decides about one site and returns the answers that are still open.
func (l *ledger) judge(st *site) (open []question) {
	told, about := st.node.told, st.node.about
	var gets []port
	for _, p := range st.service.ports {
		q := question{st.node.Name, p}
		since, tracked := l.in.since[q]
		held := told.Held[p.String()]
		by := l.holder(st, p)
		switch {
		case by != "":
		case about[p] && held != "" && (!st.granted(p) || tracked): // tracked: it was given before the node could say so
			by = held
		case st.granted(p): // whoever uses it on the node came later
			gets = append(gets, p)
			if tracked && !about[p] {
				open, st.unchecked = append(open, q), true
			}
		case l.leaving(st, p):
			st.waits = true // the end of that is an event
		case about[p]:
			gets = append(gets, p)
		default:
			gets, open = append(gets, p), append(open, q)
			late := tracked && l.in.now.Sub(since) >= patience
			st.waits, st.unchecked = st.waits || !late, st.unchecked || late
		}
		if by != "" {
			st.refused = append(st.refused, holding{p, by})
		}
	}
	if len(st.refused) > 0 { // kube-proxy serves all ports at an address, or none
		return nil
	}
	for _, p := range gets {
		for _, a := range st.addrs {
			l.taken[claim{a.Addr, p}] = st.service
		}
	}
	return open
}

// holder says in words who has a port of a site already, as far as the control plane knows. Coracle's own ports come
// first: nothing that a status says gives them away.
func (l *ledger) holder(st *site, p port) string {
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
	}
	if np := l.in.nodePorts[p]; np.service != st.service.UID && !st.granted(p) {
		return np.text
	}
	return ""
}

// granted reports whether the Service has a port on this site by its status.
func (st *site) granted(p port) bool {
	for _, a := range st.addrs {
		if st.service.has[a.Addr][p] {
			return true
		}
	}
	return false
}

// leaving reports whether another Service that does not keep a port of the site is still said to have it: kube-proxy
// must not see two Services with one port of one address.
func (l *ledger) leaving(st *site, p port) bool {
	for _, a := range st.addrs {
		for _, other := range l.listed[claim{a.Addr, p}] {
			if other.UID != st.service.UID {
				return true
			}
		}
	}
	return false
}
