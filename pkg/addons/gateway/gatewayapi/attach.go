package gatewayapi

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// attachment are the listeners of a Gateway that serve a route, by host.
type attachment struct {
	gateway *gatewayState
	hosts   []string
	by      map[string][]string
}

func (a *attachment) add(host string, l *listener) {
	if _, known := a.by[host]; !known {
		a.hosts = append(a.hosts, host)
	}
	if !slices.Contains(a.by[host], l.configName()) {
		a.by[host] = append(a.by[host], l.configName())
	}
}

// attachments attaches a route to listeners.
func (t *translation) attachments(r *route) (all []*attachment) {
	for _, ref := range r.parents {
		g, listeners, rejected := t.parentOf(r, ref)
		if g == nil {
			continue // another controller's
		}
		p := parent{ref: ref, rejected: rejected}
		at := slices.IndexFunc(all, func(a *attachment) bool { return a.gateway == g })
		if at < 0 {
			at = len(all)
			all = append(all, &attachment{gateway: g, by: map[string][]string{}})
		}
		if p.rejected == nil {
			p.rejected = t.choose(r, ref, listeners, all[at])
		}
		r.attached = append(r.attached, p)
	}
	return all
}

// attach attaches a route to listeners, and adds its rules to the configuration.
func (t *translation) attach(r *route) {
	for _, a := range t.attachments(r) {
		if len(a.hosts) == 0 {
			continue // what is attached nowhere costs nothing
		}
		c := r.rules(a.gateway)
		r.served = r.served || c.served || len(c.streams) > 0
		for _, host := range a.hosts {
			listeners := slices.DeleteFunc(slices.Clone(a.by[host]), func(name string) bool { return !t.inUse[name] })
			if len(listeners) == 0 {
				continue
			}
			for _, one := range c.routes {
				one.Listeners, one.Host, one.Source = listeners, host, string(r.kind)+" "+keyOf(r.object).String()
				t.Config.Routes = append(t.Config.Routes, one)
			}
			for _, one := range c.streams {
				one.Listeners = listeners
				if host != "" {
					one.Hosts = []string{host}
				}
				t.Config.Streams = append(t.Config.Streams, one)
			}
		}
	}
}

// parentOf returns the Gateway that a reference leads to, directly or by a ListenerSet, and the listeners that it may mean; nil if it is none of ours.
func (t *translation) parentOf(r *route, ref v1.ParentReference) (*gatewayState, []*listener, *fault) {
	if or(ref.Group, v1.GroupName) != v1.GroupName {
		return nil, nil, nil
	}
	key := types.NamespacedName{Namespace: string(or(ref.Namespace, v1.Namespace(r.object.GetNamespace()))), Name: string(ref.Name)}
	switch or(ref.Kind, kindGateway) {
	case kindGateway:
		g := t.byName[key]
		if g == nil {
			return nil, nil, nil
		}
		own := slices.DeleteFunc(slices.Clone(g.listeners), func(l *listener) bool { return l.set != nil })
		return g, own, nil
	case kindListenerSet:
		s := t.setNamed[key]
		if s == nil {
			return nil, nil, nil
		}
		if s.rejected != nil {
			return s.gateway, nil, faulty(v1.RouteReasonNotAllowedByListeners, "ListenerSet %s is not accepted: %s", key, s.rejected.message)
		}
		return s.gateway, s.listeners, nil
	}
	return nil, nil, nil
}

// choose attaches a route to those of the listeners that a reference means, and that allow it.
func (t *translation) choose(r *route, ref v1.ParentReference, listeners []*listener, to *attachment) *fault {
	var named, allowed, matched bool
	var taken *fault
	for _, l := range listeners {
		if ref.SectionName != nil && *ref.SectionName != l.name || ref.Port != nil && *ref.Port != l.port || l.conflicted != nil {
			continue
		}
		named = true
		if !t.allows(l, r) {
			continue
		}
		allowed = true
		for _, h := range r.hostsOn(l) {
			if of, ok := t.ingressOf(l, h); ok {
				taken = ofIngress(v1.RouteReasonNoMatchingListenerHostname, h, of)
				continue
			}
			matched = true
			l.attached[r.object.GetUID()] = true
			to.add(h, l)
			t.hold(l, h, string(r.kind), r.object)
		}
	}
	switch {
	case !named:
		return faulty(v1.RouteReasonNoMatchingParent, "%s has no such listener", ref.Name)
	case !allowed:
		return faulty(v1.RouteReasonNotAllowedByListeners, "the listeners of %s do not allow a %s of namespace %s (allowedRoutes)", ref.Name, r.kind, r.object.GetNamespace())
	case !matched && taken != nil:
		return taken
	case !matched:
		return faulty(v1.RouteReasonNoMatchingListenerHostname, "no listener of %s serves the host names of the route", ref.Name)
	case taken != nil:
		r.drop(taken)
	}
	return nil
}

// allows reports whether a listener allows a route.
func (t *translation) allows(l *listener, r *route) bool {
	if !slices.ContainsFunc(l.kinds, func(k v1.RouteGroupKind) bool { return k.Kind == r.kind }) {
		return false
	}
	from, selector := v1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if l.allowed != nil && l.allowed.Namespaces != nil {
		from, selector = or(l.allowed.Namespaces.From, from), l.allowed.Namespaces.Selector
	}
	return t.allowed(from, selector, l.owner.GetNamespace(), r.object.GetNamespace())
}

// hostsOn returns the hosts that a route has on a listener.
func (r *route) hostsOn(l *listener) (out []string) {
	if len(r.hosts) == 0 {
		return []string{l.host}
	}
	for _, name := range r.hosts {
		if h, ok := intersect(l.host, host(&name)); ok && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// intersect returns the hosts that both of two names mean, each of which may be empty, for all hosts, or a wildcard, for all names below it.
func intersect(a, b string) (string, bool) {
	switch {
	case a == b || b == "":
		return a, true
	case a == "":
		return b, true
	case strings.HasPrefix(a, "*.") && strings.HasSuffix(b, a[1:]):
		return b, true
	case strings.HasPrefix(b, "*.") && strings.HasSuffix(a, b[1:]):
		return a, true
	}
	return "", false
}
