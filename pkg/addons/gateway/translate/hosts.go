package translate

import (
	"net/http"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// root returns the route of app-root, if a route serves the path / of its host.
func (t *translation) root(i *networkingv1.Ingress, a *annotated, r gateway.Route) *gateway.Route {
	if a.appRoot == "" || a.closed || t.rooted[r.Host] {
		return nil
	}
	serves := strings.Trim(r.Path, "/") == ""
	if a.expressions && r.Kind == gateway.Prefix {
		compiled, err := gateway.CompileExpression("(?:" + r.Path + ").*")
		serves = err == nil && compiled.MatchString("/")
	}
	if !serves {
		return nil
	}
	t.rooted[r.Host] = true
	return &gateway.Route{
		Listeners: r.Listeners, Source: r.Source, Host: r.Host, Match: gateway.Match{Path: "/", Kind: gateway.Exact}, Unserved: r.Unserved,
		Filters: gateway.Filters{Redirect: &gateway.Redirect{Path: &gateway.PathRewrite{Path: a.appRoot}, Status: http.StatusFound}},
	}
}

// further serves the hosts that annotations name: aliases, and the name with www. or without it.
func (t *translation) further(i *networkingv1.Ingress, host string, serve func(host string)) {
	a := t.asked[i]
	free := func(name, annotation string) bool {
		if t.ruled[name] {
			t.problem(i, "AnnotationRefused", "annotation %s%s: host %s has rules of its own", nginxPrefix, annotation, name)
			return false
		}
		if other := t.claim(i, name); other != "" {
			t.problem(i, "HostTaken", "annotation %s%s: host %s belongs to %s", nginxPrefix, annotation, name, other)
			return false
		}
		return true
	}
	for _, alias := range a.aliases {
		if alias != host && free(alias, "server-alias") {
			serve(alias)
		}
	}
	if !a.www || host == "" || strings.HasPrefix(host, "*.") {
		return
	}
	other, without := strings.CutPrefix(host, "www.")
	if !without {
		other = "www." + host
	}
	if free(other, "from-to-www-redirect") {
		t.ruled[other] = true
		t.Config.Routes = append(t.Config.Routes, gateway.Route{
			Listeners: []string{listenerHTTP, listenerHTTPS}, Source: Source("Ingress", i), Host: other, Match: gateway.Match{Path: "/"}, Unserved: http.StatusServiceUnavailable,
			Filters: gateway.Filters{Redirect: &gateway.Redirect{Host: host, Status: http.StatusPermanentRedirect}},
		})
	}
}

// pass leads the TLS connections of hosts with ssl-passthrough to their backends, whatever their paths.
func (t *translation) pass() {
	listening := slices.ContainsFunc(t.Config.Listeners, func(l gateway.Listener) bool { return l.Name == listenerHTTPS })
	passed := map[string]bool{}
	for _, i := range t.Served {
		a := t.asked[i]
		if !a.passthrough || a.closed || !listening {
			continue
		}
		for _, rule := range i.Spec.Rules {
			host := strings.ToLower(rule.Host)
			if host == "" || passed[host] || t.claim(i, host) != "" || rule.HTTP == nil || len(rule.HTTP.Paths) == 0 {
				continue
			}
			passed[host] = true
			r := gateway.Route{Host: host, Match: matchOf(rule.HTTP.Paths[0])}
			t.backend(i, &r, rule.HTTP.Paths[0].Backend)
			l := gateway.Listener{Name: "ingress-passthrough-" + host, Port: PortHTTPS, Protocol: gateway.Passthrough, Host: host, HostsApart: true}
			stream := gateway.Stream{Listeners: []string{l.Name}, Hosts: []string{host}, Source: Source("Ingress", i), Clients: a.policy.Clients, Backends: r.Backends}
			if stream.Close(a.policy) {
				t.problem(i, "AnnotationRefused", "annotation %sssl-passthrough: no passwords or limits hold for TLS that goes to the backend as it is, so connections to %s with TLS are closed. Remove one or the other",
					nginxPrefix, named(host))
			}
			t.Config.Listeners = append(t.Config.Listeners, l)
			t.Config.Streams = append(t.Config.Streams, stream)
		}
	}
}
