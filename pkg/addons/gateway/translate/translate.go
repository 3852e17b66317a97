// Package translate makes the configuration of a node's gateway from the objects of the API. It is pure: the same objects give the same result.
//
// A host belongs to the namespace of the oldest Ingress that names it, or to an older object of the Gateway API: nobody else can take its paths or its
// certificate.
package translate

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Controller is what classes name that the gateway serves.
const Controller = "coracle.dev/gateway"

// Class is the name of the IngressClass that comes with coracle.
const Class = "coracle"

// The ports of Ingresses.
const (
	PortHTTP  = 80
	PortHTTPS = 443
)

// The names of the listeners of Ingresses.
const (
	listenerHTTP  = "ingress-http"
	listenerHTTPS = "ingress-https"
)

// Objects are what a translation reads.
type Objects struct {
	Classes      []*networkingv1.IngressClass
	Ingresses    []*networkingv1.Ingress
	Services     []*corev1.Service
	Slices       []*discoveryv1.EndpointSlice
	Certificates map[types.NamespacedName]Certificate // those of Secrets of type kubernetes.io/tls
	Node         []netip.Addr                         // the addresses of the node
	Passwords    Passwords                            // those of PasswordSecrets
	// OtherClasses are names of classes that are served too, also if their controllers are ingress-nginx or Traefik.
	OtherClasses []string
	// Held are the hosts that objects of the Gateway API have where Ingresses are served.
	Held   map[string]Holder
	Orders *Orders // takes the certificates that are wanted by ACME; nil if there is no ACME server
}

// Certificate is the content of a Secret of type kubernetes.io/tls.
type Certificate struct {
	Chain, Key string
	Problem    string                  // why it cannot serve, "" if it can
	Serves     func(host string) error // why clients refuse it for a host
	Issuer     string                  // AnnotationIssuer of the Secret
	Leaf       *x509.Certificate       // nil if it cannot serve
}

// Result is what comes of a translation.
type Result struct {
	Config    gateway.Config
	Endpoints gateway.Endpoints
	// Served are the Ingresses of our classes.
	Served []*networkingv1.Ingress
	// Problems are what people are told in Events.
	Problems []Problem
	// Hosts are those that Ingresses have, each with the one that came first.
	Hosts map[string]types.NamespacedName
	// Yields are the hosts below their wildcards that older objects of the Gateway API keep, sorted.
	Yields []string
}

// Problem is something in an Ingress that is not served as it was meant.
type Problem struct {
	Ingress *networkingv1.Ingress
	Reason  string
	Message string
}

// Ingresses translates. The result has no listeners if there is no Ingress of our classes.
func Ingresses(o Objects) Result {
	t := &translation{
		services: map[types.NamespacedName]*corev1.Service{}, slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{},
		certificates: o.Certificates, owners: map[string]*networkingv1.Ingress{}, taken: map[string]*networkingv1.Ingress{},
		secured: map[string]*networkingv1.Ingress{}, chosen: map[types.NamespacedName]gateway.Certificate{}, sources: map[string][]string{},
		passwords: o.Passwords, expressions: gateway.Expressions{}, nginx: nginxClasses(o.Classes),
	}
	t.orders, t.held = o.Orders, o.Held
	t.Endpoints = gateway.Endpoints{}
	for _, s := range o.Services {
		t.services[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
	}
	for _, s := range o.Slices {
		of := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		t.slices[of] = append(t.slices[of], s)
	}
	t.Served = Ours(o.Classes, o.Ingresses, o.OtherClasses)
	if len(t.Served) == 0 {
		return t.Result
	}
	slices.SortFunc(t.Served, Older)
	t.listen(o)
	t.claims()
	t.annotate()
	t.findPassed()
	for _, i := range t.Served {
		if t.asked[i].canary == nil {
			t.rules(i)
			t.tls(i)
		}
	}
	t.pass()
	t.lonely()
	t.yield()
	for _, key := range slices.SortedFunc(maps.Keys(t.chosen), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		t.Config.Certificates = append(t.Config.Certificates, t.chosen[key])
	}
	t.Hosts = map[string]types.NamespacedName{}
	for host, i := range t.owners {
		t.Hosts[host] = types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
	}
	slices.SortStableFunc(t.Config.Routes, func(a, b gateway.Route) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Path, b.Path), strings.Compare(string(b.Kind), string(a.Kind)))
	})
	return t.Result
}

// annotationClass was how an Ingress named its class before there were IngressClasses.
const annotationClass = "kubernetes.io/ingress.class"

// Older orders objects by age. Those of the same second, the unit of the API, are ordered by their names.
func Older[T metav1.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// translation is one that goes on.
type translation struct {
	Result
	services     map[types.NamespacedName]*corev1.Service
	slices       map[types.NamespacedName][]*discoveryv1.EndpointSlice
	certificates map[types.NamespacedName]Certificate

	held    map[string]Holder
	owners  map[string]*networkingv1.Ingress // the oldest one of each host
	taken   map[string]*networkingv1.Ingress // the one of each host and path
	secured map[string]*networkingv1.Ingress // the one of each host's certificate
	chosen  map[types.NamespacedName]gateway.Certificate
	sources map[string][]string // of certificates, by host
	orders  *Orders

	passwords   Passwords
	expressions gateway.Expressions
	nginx       map[string]bool // the names of classes of ingress-nginx
	asked       map[*networkingv1.Ingress]*annotated
	canaries    map[place]*canaryBackend
	matched     map[string]bool    // by namespace and host: paths are regular expressions
	tlsHosts    map[string]bool    // by namespace and host: an Ingress names a certificate
	ruled       map[string]bool    // hosts that have rules
	rooted      map[string]bool    // hosts that have an app-root
	passed      map[[2]string]bool // by namespace and host: backends terminate TLS
}

func (t *translation) problem(i *networkingv1.Ingress, reason, format string, values ...any) {
	message := fmt.Sprintf(format, values...)
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	t.Problems = append(t.Problems, Problem{i, reason, message})
}

// maxMessage bounds a message in bytes: it may quote an annotation of 256 KiB.
const maxMessage = 1000

// listen adds the listeners, except those whose ports a Service of type LoadBalancer has on the node: it keeps them.
func (t *translation) listen(o Objects) {
	for _, l := range []gateway.Listener{
		{Name: listenerHTTP, Port: PortHTTP, Protocol: gateway.HTTP, HostsApart: true},
		{Name: listenerHTTPS, Port: PortHTTPS, Protocol: gateway.HTTPS, HostsApart: true, Certificates: t.sources},
	} {
		if holder := heldBy(o, int32(l.Port)); holder != nil {
			for _, i := range t.Served {
				t.problem(i, "PortInUse", "Service %s/%s of type LoadBalancer has %s of this server: Ingresses are not served on it. Delete the Service, or give it other ports",
					holder.Namespace, holder.Name, l)
			}
			continue
		}
		t.Config.Listeners = append(t.Config.Listeners, l)
	}
}

func heldBy(o Objects, port int32) *corev1.Service {
	for _, s := range o.Services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
		}) {
			continue
		}
		for _, given := range s.Status.LoadBalancer.Ingress {
			if ip, err := netip.ParseAddr(given.IP); err == nil && slices.Contains(o.Node, ip) {
				return s
			}
		}
	}
	return nil
}

func (t *translation) rules(i *networkingv1.Ingress) {
	refused := map[string]bool{}
	refuse := func(host, other string) {
		if !refused[host] {
			t.problem(i, "HostTaken", "%s belongs to %s: this Ingress does not serve it", named(host), other)
		}
		refused[host] = true
	}
	for _, rule := range i.Spec.Rules {
		host := strings.ToLower(rule.Host)
		if other := t.claim(i, host); other != "" {
			refuse(host, other)
			continue
		}
		if rule.HTTP == nil {
			continue
		}
		serve := func(host string) {
			for _, p := range rule.HTTP.Paths {
				t.route(i, host, matchOf(p), p.Backend, true)
			}
		}
		serve(host)
		t.further(i, host, serve)
	}
	if i.Spec.DefaultBackend == nil {
		return
	}
	// The default backend is for what no rule matches: of the hosts of the Ingress, or of all hosts if it has no rules.
	hosts := map[string]bool{}
	for _, rule := range i.Spec.Rules {
		hosts[strings.ToLower(rule.Host)] = true
	}
	if len(hosts) == 0 {
		hosts[""] = true
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if other := t.claim(i, host); other == "" {
			t.route(i, host, gateway.Match{Path: "/"}, *i.Spec.DefaultBackend, len(i.Spec.Rules) == 0)
		} else {
			refuse(host, other)
		}
	}
}

// named returns a host as messages name it.
func named(host string) string {
	if host == "" {
		return "every host without rules of its own"
	}
	return "host " + host
}

// route adds a route. If another Ingress has it, the older one keeps it; tell says whether people are told.
func (t *translation) route(i *networkingv1.Ingress, host string, match gateway.Match, to networkingv1.IngressBackend, tell bool) {
	path := match.Path
	if match.Kind == gateway.Prefix {
		path = strings.TrimRight(path, "/")
	}
	key := fmt.Sprintf("%s %s %s", host, match.Kind, path)
	if other := t.taken[key]; other != nil {
		if tell {
			t.problem(i, "PathTaken", "path %s of %s is one of Ingress %s already", match.Path, named(host), other.Name)
		}
		return
	}
	t.taken[key] = i
	r := gateway.Route{Listeners: []string{listenerHTTP, listenerHTTPS}, Source: Source("Ingress", i), Host: host, Match: match, Unserved: http.StatusServiceUnavailable}
	t.backend(i, &r, to)
	t.Config.Routes = append(t.Config.Routes, t.expand(i, r)...)
}
