package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// tenants are objects of several namespaces that want hosts of each other. Times are in seconds.
type tenants struct {
	read translate.Objects
	own  gatewayapi.Objects
}

// newTenants returns Gateway infra/front, of second 1, which lets everybody attach routes to its listeners for port 80 and for TLS.
func newTenants() *tenants {
	all := &v1.AllowedRoutes{Namespaces: &v1.RouteNamespaces{From: new(v1.NamespacesFromAll)}}
	c := &tenants{}
	c.read.Classes = []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: translate.Class}, Spec: networkingv1.IngressClassSpec{Controller: translate.Controller}}}
	c.read.Orders = translate.NewOrders()
	c.own.Orders, c.own.Version = c.read.Orders, "v1.6.3"
	c.own.Classes = []*v1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "coracle"}, Spec: v1.GatewayClassSpec{ControllerName: translate.Controller}}}
	c.own.Gateways = []*v1.Gateway{{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "front", UID: "front", CreationTimestamp: metav1.Unix(1, 0)}, Spec: v1.GatewaySpec{
		GatewayClassName: "coracle", Listeners: []v1.Listener{{Name: "http", Port: 80, Protocol: v1.HTTPProtocolType, AllowedRoutes: all}},
	}}}
	return c
}

func (c *tenants) listener(name string, port int32, protocol v1.ProtocolType, host string, tls *v1.ListenerTLSConfig) {
	l := v1.Listener{Name: v1.SectionName(name), Port: port, Protocol: protocol, TLS: tls}
	if host != "" {
		l.Hostname = new(v1.Hostname(host))
	}
	c.own.Gateways[0].Spec.Listeners = append(c.own.Gateways[0].Spec.Listeners, l)
}

func toFront(section v1.SectionName) v1.CommonRouteSpec {
	return v1.CommonRouteSpec{ParentRefs: []v1.ParentReference{{Name: "front", Namespace: new(v1.Namespace("infra")), SectionName: &section}}}
}

func (c *tenants) route(namespace string, second int64, host v1.Hostname) {
	c.own.HTTPRoutes = append(c.own.HTTPRoutes, &v1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "route", UID: types.UID(namespace), CreationTimestamp: metav1.Unix(second, 0)},
		Spec:       v1.HTTPRouteSpec{CommonRouteSpec: toFront("http"), Hostnames: []v1.Hostname{host}, Rules: []v1.HTTPRouteRule{{}}},
	})
}

// ingress adds one that asks for a certificate.
func (c *tenants) ingress(namespace string, second int64, host string) {
	class, kind := translate.Class, networkingv1.PathTypePrefix
	c.read.Ingresses = append(c.read.Ingresses, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: types.UID(namespace), CreationTimestamp: metav1.Unix(second, 0), Annotations: map[string]string{translate.AnnotationACME: "true"}},
		Spec: networkingv1.IngressSpec{IngressClassName: &class, TLS: []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: "cert"}}, Rules: []networkingv1.IngressRule{{
			Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &kind}}}},
		}}},
	})
}

// serving returns which object's route serves a request for a host, and what Ingresses and Gateways are told.
func (c *tenants) serving(t *testing.T, host string) (source, told string) {
	t.Helper()
	o := translated(c.read, c.own, len(c.read.Ingresses) > 0)
	for _, p := range o.ingresses.Problems {
		told += fmt.Sprintf("Ingress %s/%s: %s: %s\n", p.Ingress.Namespace, p.Ingress.Name, p.Reason, p.Message)
	}
	for _, s := range o.api.Statuses(gatewayapi.Applied{}) {
		for _, p := range s.Parents {
			for _, condition := range p.Conditions {
				told += fmt.Sprintf("%s %s/%s: %s: %s\n", s.Kind, s.Object.GetNamespace(), s.Object.GetName(), condition.Reason, condition.Message)
			}
		}
		if s.Gateway != nil {
			for _, l := range s.Gateway.Listeners {
				for _, condition := range l.Conditions {
					told += fmt.Sprintf("listener %s: %s: %s\n", l.Name, condition.Reason, condition.Message)
				}
			}
		}
	}
	config, endpoints := o.merged()
	request, err := http.NewRequest(http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	found := routes.New(config, endpoints, nil).Find(routes.Connection{Local: netip.MustParseAddrPort("192.0.2.1:80")}, host, request)
	if found.Route != nil {
		source = found.Route.Source
	}
	return source, told
}

// wanted returns for which Secrets certificates are wanted by ACME.
func (c *tenants) wanted() (out []string) {
	for _, w := range c.read.Orders.List() {
		out = append(out, w.Secret.String())
	}
	return out
}

// TestOlderHolds: of an Ingress and a route of the Gateway API for the same host the older one serves it, also below a wildcard of the Ingress. The newer one is told, and gets no
// certificate.
func TestOlderHolds(t *testing.T) {
	for _, c := range []struct {
		ingress        string
		second         int64 // of the Ingress; the route's is 10
		host           v1.Hostname
		asked          string
		source, told   string
		hasCertificate bool
	}{
		{"shop.com", 20, "shop.com", "shop.com", "HTTPRoute shop/route", "Ingress evil/web: HostTaken: host shop.com belongs to HTTPRoute shop/route, which is older", false},
		{"shop.com", 5, "shop.com", "shop.com", "Ingress evil/web", "HTTPRoute shop/route: NoMatchingListenerHostname: host shop.com belongs to Ingress evil/web", true},
		{"*.com", 20, "shop.com", "shop.com", "HTTPRoute shop/route", "Ingress evil/web: HostTaken: host shop.com belongs to HTTPRoute shop/route, which is older", false},
		{"*.com", 20, "shop.com", "other.com", "Ingress evil/web", "HTTPRoute shop/route: Accepted: ", false},
		{"*.com", 5, "shop.com", "shop.com", "Ingress evil/web", "HTTPRoute shop/route: NoMatchingListenerHostname: host shop.com belongs to Ingress evil/web", false},
		{"*.com", 20, "*.com", "shop.com", "HTTPRoute shop/route", "Ingress evil/web: HostTaken: host *.com belongs to HTTPRoute shop/route", false},
		{"shop.com", 20, "*.com", "shop.com", "Ingress evil/web", "HTTPRoute shop/route: Accepted: ", true}, // a name goes before a wildcard
	} {
		all := newTenants()
		all.ingress("evil", c.second, c.ingress)
		all.route("shop", 10, c.host)
		source, told := all.serving(t, c.asked)
		if source != c.source || !strings.Contains(told, c.told) {
			t.Errorf("Ingress for %s of second %d, route for %s: %s is served by %q, want %s\n%s", c.ingress, c.second, c.host, c.asked, source, c.source, told)
		}
		if got := slices.Contains(all.wanted(), "evil/cert"); got != c.hasCertificate {
			t.Errorf("Ingress for %s of second %d, route for %s: a certificate for the Ingress: %v\n%s", c.ingress, c.second, c.host, got, told)
		}
	}
}

// TestListenersHold: a newer Ingress stops no listener that names its host, and gets no certificate for it, at whatever port or address the listener is.
func TestListenersHold(t *testing.T) {
	for _, port := range []int32{443, 8443} {
		all := newTenants()
		all.listener("secure", port, v1.TLSProtocolType, "shop.com", &v1.ListenerTLSConfig{Mode: new(v1.TLSModePassthrough)})
		all.ingress("evil", 20, "shop.com")
		source, told := all.serving(t, "shop.com")
		if strings.Contains(told, "HostnameConflict") || port == 443 && (source != "" || !strings.Contains(told, "Ingress evil/web: HostTaken: host shop.com belongs to Gateway infra/front")) {
			t.Errorf("port %d: %q serves the host\n%s", port, source, told)
		}
		if wanted := all.wanted(); len(wanted) > 0 {
			t.Errorf("port %d: certificates are asked for: %s", port, wanted)
		}
	}
}

// TestSharedTLS: a listener for TLS without a host, or with a wildcard, goes on beside Ingresses with hosts, and one with a host beside a newer wildcard. Each connection goes where its
// name belongs.
func TestSharedTLS(t *testing.T) {
	for host, ingress := range map[string]string{"": "web.com", "*.com": "web.com", "db.com": "*.com"} {
		all := newTenants()
		all.listener("secure", 443, v1.TLSProtocolType, host, &v1.ListenerTLSConfig{Mode: new(v1.TLSModePassthrough)})
		all.ingress("other", 20, ingress)
		all.own.TLSRoutes = []*v1.TLSRoute{{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "db", CreationTimestamp: metav1.Unix(2, 0)},
			Spec: v1.TLSRouteSpec{CommonRouteSpec: toFront("secure"), Hostnames: []v1.Hostname{"db.com"}, Rules: []v1.TLSRouteRule{{}}}}}
		_, told := all.serving(t, "web.com")
		if strings.Contains(told, "HostnameConflict") {
			t.Errorf("host %q: %s", host, told)
		}
		config, _ := translated(all.read, all.own, true).merged()
		streams, refused := routes.NewStreams(config)
		if len(refused) > 0 {
			t.Errorf("host %q: %v", host, refused)
		}
		site := streams.At(netip.MustParseAddrPort("192.0.2.1:443"), false)
		for name, web := range map[string]bool{"web.com": true, "db.com": false, "": true} {
			if listener, stream := site.Find(name); listener == nil || listener.IsWeb() != web || (stream == nil) != web {
				t.Errorf("listener for %q: a connection for %q goes to %+v, %+v", host, name, listener, stream)
			}
		}
	}
}

// TestLateListener: a route holds no host for longer than the listener that it is attached to, or nothing would serve what the older Ingress leaves to it.
func TestLateListener(t *testing.T) {
	all := newTenants()
	front := all.own.Gateways[0]
	front.CreationTimestamp, front.Spec.Listeners[0].Hostname = metav1.Unix(30, 0), new(v1.Hostname("*.com"))
	all.ingress("shop", 20, "*.com")
	all.route("evil", 10, "pay.com")
	if source, told := all.serving(t, "pay.com"); source != "Ingress shop/web" {
		t.Errorf("%q serves the host\n%s", source, told)
	}
}

// TestRoutesClaim: who asks for a certificate, with an Ingress or a Gateway, gets none for a host that an older route of another namespace names at an address of its Gateway's own.
// The namespaces of the route and of its listener do.
func TestRoutesClaim(t *testing.T) {
	for _, c := range []struct {
		route     v1.Hostname
		second    int64 // of the route; what asks is of second 20, and the route's Gateway of 1
		namespace string
		asked     string
		wanted    bool
	}{
		{"shop.com", 10, "evil", "shop.com", false}, {"shop.com", 10, "shop", "shop.com", true}, {"shop.com", 10, "infra", "shop.com", true}, {"shop.com", 30, "evil", "shop.com", true},
		{"*.com", 10, "evil", "a.shop.com", false}, {"*.com", 10, "shop", "a.shop.com", true}, {"*.shop.com", 10, "evil", "shop.com", true},
	} {
		for _, asks := range []string{"Ingress", "Gateway"} {
			all := newTenants()
			all.own.Pools, all.own.Gateways[0].Status = true, v1.GatewayStatus{
				Addresses: []v1.GatewayStatusAddress{{Value: "192.0.2.9"}}, Conditions: []metav1.Condition{{Type: addon.OwnAddress, Status: metav1.ConditionTrue}},
			}
			all.route("shop", c.second, c.route)
			if asks == "Ingress" {
				all.ingress(c.namespace, 20, c.asked)
			} else {
				front := all.own.Gateways[0]
				all.own.Gateways = append(all.own.Gateways, &v1.Gateway{
					ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "second", UID: "second", CreationTimestamp: metav1.Unix(20, 0), Annotations: map[string]string{translate.AnnotationACME: "true"}},
					Spec: v1.GatewaySpec{GatewayClassName: "coracle", Listeners: []v1.Listener{{
						Name: "https", Port: 443, Protocol: v1.HTTPSProtocolType, Hostname: new(v1.Hostname(c.asked)), TLS: &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: "cert"}}},
					}}},
					Status: front.Status,
				})
			}
			_, told := all.serving(t, c.asked)
			if wanted := all.wanted(); slices.Contains(wanted, c.namespace+"/cert") != c.wanted {
				t.Errorf("route for %s of second %d, %s of %s: certificates for %s are wanted for %s\n%s", c.route, c.second, asks, c.namespace, c.asked, wanted, told)
			}
		}
	}
}

// TestListenerBeforeRoute: a route that waits for a Gateway takes no certificate from it.
func TestListenerBeforeRoute(t *testing.T) {
	for _, host := range []v1.Hostname{"shop.com", "*.com"} {
		all := newTenants()
		front := all.own.Gateways[0]
		front.CreationTimestamp, front.Spec.Listeners[0].Hostname = metav1.Unix(10, 0), &host
		all.route("evil", 5, "shop.com")
		all.listener("secure", 8443, v1.HTTPSProtocolType, "shop.com", nil)
		all.serving(t, "shop.com")
		for namespace, refused := range map[string]bool{"evil": true, "infra": false} {
			why := all.own.Orders.Add(corev1.ObjectReference{}, nil, types.NamespacedName{Namespace: namespace, Name: "cert"}, translate.Certificate{}, []string{"shop.com"})
			if (len(why) > 0) != refused {
				t.Errorf("listener for %s: a certificate for namespace %s: %s", host, namespace, why)
			}
		}
	}
}
