package translate

import (
	"cmp"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// place is a path of a host in a namespace.
type place struct {
	namespace, host string
	kind            gateway.PathKind
	path            string
}

func placeOf(namespace, host string, m gateway.Match) place {
	p := place{namespace, host, m.Kind, m.Path}
	if m.Kind == gateway.Prefix {
		p.path = strings.TrimRight(p.path, "/")
	}
	return p
}

// canaryBackend is where a canary leads.
type canaryBackend struct {
	*canary
	ingress  *networkingv1.Ingress
	backends []gateway.Backend
	used     bool
}

// annotate reads the annotations of all Ingresses, before there are routes: canaries and expressions change the routes of others.
func (t *translation) annotate() {
	t.asked = map[*networkingv1.Ingress]*annotated{}
	t.canaries = map[place]*canaryBackend{}
	t.matched, t.tlsHosts, t.rooted, t.ruled = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, i := range t.Served {
		a := t.annotations(i)
		t.asked[i] = a
		for _, entry := range i.Spec.TLS {
			for _, host := range hostsOf(i, entry) {
				t.tlsHosts[i.Namespace+" "+host] = true
			}
		}
		for _, rule := range i.Spec.Rules {
			host := strings.ToLower(rule.Host)
			t.ruled[host] = t.ruled[host] || a.canary == nil
			if a.expressions {
				for _, h := range append([]string{host}, a.aliases...) {
					t.matched[i.Namespace+" "+h] = true
				}
			}
			if a.canary == nil || rule.HTTP == nil {
				continue
			}
			for _, p := range rule.HTTP.Paths {
				match := matchOf(p)
				r := gateway.Route{Host: host, Match: match}
				t.backend(i, &r, p.Backend)
				if at := placeOf(i.Namespace, host, match); t.canaries[at] == nil {
					t.canaries[at] = &canaryBackend{canary: a.canary, ingress: i, backends: r.Backends}
				}
			}
		}
	}
}

func matchOf(p networkingv1.HTTPIngressPath) gateway.Match {
	match := gateway.Match{Path: cmp.Or(p.Path, "/")}
	if p.PathType != nil && *p.PathType == networkingv1.PathTypeExact {
		match.Kind = gateway.Exact
	}
	return match
}

// lonely tells people about canaries that take from nobody.
func (t *translation) lonely() {
	for _, i := range t.Served {
		if alone := t.alone(i); alone != nil {
			t.problem(i, "CanaryWithoutMain", "no other Ingress of the namespace serves path %.200s of %s: a canary takes a part of what another Ingress gets", cmp.Or(alone.path, "/"), named(alone.host))
		}
	}
}

// alone returns the first place of a canary that takes from nobody. It is the same one each time, or people would be told of another one each time.
func (t *translation) alone(i *networkingv1.Ingress) *place {
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			at := placeOf(i.Namespace, strings.ToLower(rule.Host), matchOf(p))
			if c := t.canaries[at]; c != nil && c.ingress == i && !c.used {
				return &at
			}
		}
	}
	return nil
}

// expand returns the routes for a path of an Ingress with annotations.
func (t *translation) expand(i *networkingv1.Ingress, r gateway.Route) []gateway.Route {
	a := t.asked[i]
	canary, original := t.canaries[placeOf(i.Namespace, r.Host, r.Match)], r.Match.Path
	root := t.root(i, a, r)
	t.express(i, a, &r)
	if a.closed {
		r.Backends = nil
		return []gateway.Route{r}
	}
	if a.policy.Redirect != nil {
		r.Backends = nil
	}
	r.Filters = a.filters
	if a.path != "" && a.path != original {
		r.Rewrite = &gateway.Rewrite{Path: &gateway.PathRewrite{Path: a.path, Groups: true}}
		if a.filters.Rewrite != nil {
			r.Rewrite.Host = a.filters.Rewrite.Host
		}
	}
	r.Retry = a.retry
	if policy := t.policyOf(i, a); !reflect.DeepEqual(policy, gateway.Policy{}) {
		r.Policy = r.Source
		if t.Config.Policies == nil {
			t.Config.Policies = map[string]gateway.Policy{}
		}
		t.Config.Policies[r.Policy] = policy
	}
	if a.protocol != nil {
		for n := range r.Backends {
			r.Backends[n].Protocol = *a.protocol
		}
	}
	out := t.redirected(i, a, withCanary(canary, r))
	if root != nil {
		out = append(t.redirected(i, a, []gateway.Route{*root}), out...)
	}
	return out
}

// express makes paths regular expressions, if those of one Ingress for the host are: the longest one wins then, as in ingress-nginx.
func (t *translation) express(i *networkingv1.Ingress, a *annotated, r *gateway.Route) {
	if r.Kind != gateway.Prefix || !t.matched[i.Namespace+" "+r.Host] {
		return
	}
	path := r.Path
	r.Kind, r.Length = gateway.Expression, len(path)
	r.Path = literal(path)
	err := gateway.CheckExpression(r.Path)
	if a.expressions {
		r.Path = expression(path)
		err = t.check(i, "", path, r.Path)
	}
	if err != nil {
		r.Path, r.Backends = beginning(path), nil
		t.problem(i, "PathInvalid", "path %.200s of %s is not a regular expression that is served: %v. What begins like it is answered with status 503", path, named(r.Host), err)
	}
}

// policyOf returns the policy of an Ingress.
func (t *translation) policyOf(i *networkingv1.Ingress, a *annotated) gateway.Policy {
	policy := a.policy
	if a.fallback == "" {
		return policy
	}
	pages := gateway.ErrorPages{Headers: []gateway.Header{{Name: "X-Namespace", Value: i.Namespace}, {Name: "X-Ingress-Name", Value: i.Name}}}
	if policy.Errors != nil {
		pages.Codes = policy.Errors.Codes
	}
	var r gateway.Route
	if service := t.services[SecretKey(i.Namespace, i.Namespace+"/"+a.fallback)]; service != nil && len(service.Spec.Ports) > 0 {
		t.backend(i, &r, networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: a.fallback, Port: networkingv1.ServiceBackendPort{Number: service.Spec.Ports[0].Port},
		}})
	} else {
		t.problem(i, "BackendNotFound", "annotation %sdefault-backend: there is no Service %s/%s with a port", nginxPrefix, i.Namespace, a.fallback)
	}
	policy.Errors = nil
	if len(r.Backends) > 0 {
		pages.Backend = r.Backends[0]
		policy.Errors = &pages
	}
	return policy
}

// withCanary returns the routes of a path of which a canary takes a part: by a header, then by a cookie, then by weight.
func withCanary(c *canaryBackend, r gateway.Route) []gateway.Route {
	if c == nil {
		return []gateway.Route{r}
	}
	c.used = true
	if len(c.backends) == 0 || len(r.Backends) == 0 {
		return []gateway.Route{r}
	}
	candidate := c.backends[0]
	candidate.Protocol = r.Backends[0].Protocol // the annotations are those of the main Ingress
	only := func(b gateway.Backend, v gateway.Value) gateway.Route {
		out := r
		b.Weight, out.Backends, out.Headers = 1, []gateway.Backend{b}, []gateway.Value{v}
		return out
	}
	var out []gateway.Route
	switch {
	case c.header == "":
	case c.value != "":
		out = append(out, only(candidate, gateway.Value{Name: c.header, Value: c.value}))
	case c.pattern != "":
		out = append(out, only(candidate, gateway.Value{Name: c.header, Value: somewhere(c.pattern), Expression: true}))
	default:
		out = append(out, only(candidate, gateway.Value{Name: c.header, Value: "always"}), only(r.Backends[0], gateway.Value{Name: c.header, Value: "never"}))
	}
	if c.cookie != "" {
		is := func(value string) gateway.Value {
			return gateway.Value{Name: "Cookie", Value: `(?:.*[;,] *)?` + regexp.QuoteMeta(c.cookie) + `=` + value + ` *(?:[;,].*)?`, Expression: true}
		}
		out = append(out, only(candidate, is("always")), only(r.Backends[0], is("never")))
	}
	main := r.Backends[0]
	main.Weight, candidate.Weight = int32(c.total-c.weight), int32(c.weight)
	r.Backends = []gateway.Backend{main, candidate}
	return append(out, r)
}

// redirected returns routes of which those without TLS lead to those with it, if the Ingress wants that.
func (t *translation) redirected(i *networkingv1.Ingress, a *annotated, in []gateway.Route) (out []gateway.Route) {
	force := a.forceSSL != nil && *a.forceSSL
	wanted := t.nginx[ClassName(i)]
	if a.sslRedirect != nil {
		wanted = *a.sslRedirect
	}
	if !force && !(wanted && t.tlsHosts[i.Namespace+" "+in[0].Host]) {
		return in
	}
	plain := in[len(in)-1] // without the headers of a canary
	plain.Listeners, plain.Backends, plain.Policy, plain.Retry = []string{listenerHTTP}, nil, "", nil
	plain.Filters = gateway.Filters{Redirect: &gateway.Redirect{Scheme: "https", Status: http.StatusPermanentRedirect}}
	out = append(out, plain)
	for _, r := range in {
		r.Listeners = []string{listenerHTTPS}
		out = append(out, r)
	}
	return out
}
