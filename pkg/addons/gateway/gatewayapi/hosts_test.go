package gatewayapi

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

func to[T any](v T) *T { return &v }

// shared are a Gateway infra/front of our class that lets everybody attach routes and listeners, with the listeners of a ListenerSet evil/more.
func shared(set ...v1.ListenerEntry) Objects {
	all := &v1.AllowedRoutes{Namespaces: &v1.RouteNamespaces{From: to(v1.NamespacesFromAll)}}
	class := &v1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "coracle"}, Spec: v1.GatewayClassSpec{ControllerName: translate.Controller}}
	front := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "front", UID: "front", CreationTimestamp: metav1.Unix(100, 0)}, Spec: v1.GatewaySpec{
		GatewayClassName: "coracle", Listeners: []v1.Listener{{Name: "http", Port: 80, Protocol: v1.HTTPProtocolType, AllowedRoutes: all}},
		AllowedListeners: &v1.AllowedListeners{Namespaces: &v1.ListenerNamespaces{From: to(v1.NamespacesFromAll)}},
	}}
	o := Objects{Classes: []*v1.GatewayClass{class}, Gateways: []*v1.Gateway{front}, Ingresses: true, Version: "v1.6.3"}
	o.Hosts = map[string]types.NamespacedName{"shop.test": {Namespace: "shop", Name: "web"}, "*.wild.test": {Namespace: "shop", Name: "wild"}}
	o.Node = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	o.Services = []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "balanced"},
		Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 9443}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}}
	if len(set) > 0 {
		o.ListenerSets = []*v1.ListenerSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "more", UID: "more", CreationTimestamp: metav1.Unix(50, 0)}, Spec: v1.ListenerSetSpec{
			ParentRef: v1.ParentGatewayReference{Name: "front", Namespace: to(v1.Namespace("infra"))}, Listeners: set,
		}}}
	}
	return o
}

func entry(port int32, protocol v1.ProtocolType, host string, tls *v1.ListenerTLSConfig) v1.ListenerEntry {
	e := v1.ListenerEntry{Name: v1.SectionName("l"), Port: port, Protocol: protocol, TLS: tls}
	if host != "" {
		e.Hostname = to(v1.Hostname(host))
	}
	return e
}

// own gives the Gateway an address of its own.
func own(o Objects) Objects {
	o.Pools = true
	o.Gateways[0].Status.Addresses = []v1.GatewayStatusAddress{{Type: to(v1.IPAddressType), Value: "192.0.2.9"}}
	o.Gateways[0].Status.Conditions = []metav1.Condition{{Type: addon.OwnAddress, Status: metav1.ConditionTrue}}
	return o
}

// TestHostsOfIngresses: a listener that another namespace adds takes no host of an older Ingress, except at an address
// that the Gateway has for itself.
func TestHostsOfIngresses(t *testing.T) {
	pass, secure := &v1.ListenerTLSConfig{Mode: to(v1.TLSModePassthrough)}, &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: "own"}}}
	for _, c := range []struct {
		listener v1.ListenerEntry
		of       string // the Ingress that has it; "-" if a Service has the port, "" if the listener serves
	}{
		{entry(443, v1.TLSProtocolType, "shop.test", pass), "shop/web"}, {entry(443, v1.TLSProtocolType, "*.test", pass), ""},
		{entry(443, v1.TLSProtocolType, "", pass), ""}, {entry(443, v1.TLSProtocolType, "a.wild.test", pass), "shop/wild"},
		{entry(443, v1.TLSProtocolType, "shop.test", secure), "shop/web"}, {entry(443, v1.HTTPSProtocolType, "shop.test", secure), "shop/web"},
		{entry(80, v1.HTTPProtocolType, "shop.test", nil), "shop/web"}, {entry(80, v1.HTTPProtocolType, "a.wild.test", nil), "shop/wild"},
		{entry(443, v1.TLSProtocolType, "other.test", pass), ""}, {entry(443, v1.TLSProtocolType, "a.b.other.test", pass), ""}, {entry(8443, v1.TLSProtocolType, "shop.test", pass), ""},
		{entry(443, v1.HTTPSProtocolType, "", secure), ""}, {entry(9443, v1.HTTPSProtocolType, "other.test", secure), "-"}, {entry(80, v1.HTTPProtocolType, "*.test", nil), ""},
	} {
		for _, apart := range []bool{false, true} {
			o := shared(c.listener)
			if apart {
				o = own(o)
			}
			o.Certificates = map[types.NamespacedName]translate.Certificate{{Namespace: "evil", Name: "own"}: {Chain: "chain", Key: "key"}}
			result := Translate(o)
			serves := slices.ContainsFunc(result.Config.Listeners, func(l gateway.Listener) bool { return l.Name == "listenerset/evil/more/l" })
			if serves != (c.of == "" || apart) {
				t.Errorf("%+v with an address of its own %v: served %v", c.listener, apart, serves)
			}
			if keys := len(result.Config.Certificates); (keys > 0) != (serves && c.listener.TLS == secure) {
				t.Errorf("%+v, served %v: the gateway gets %d private keys", c.listener, serves, keys)
			}
			if told := statuses(result.Statuses(Applied{})); !apart && len(c.of) > 1 && (!strings.Contains(told, `"HostnameConflict"`) || !strings.Contains(told, "Ingress "+c.of)) {
				t.Errorf("%+v: %s", c.listener, told)
			}
		}
	}
}

// TestRoutesOfIngressHosts: a route of another namespace gets none of the hosts of Ingresses, and is told; what else it has is served.
func TestRoutesOfIngressHosts(t *testing.T) {
	for _, c := range []struct {
		hosts  []v1.Hostname
		served []string
		reason string
	}{
		{[]v1.Hostname{"shop.test"}, nil, `"NoMatchingListenerHostname"`}, {[]v1.Hostname{"shop.test", "mine.test"}, []string{"mine.test"}, `"PartiallyInvalid"`},
		{[]v1.Hostname{"a.wild.test", "*.wild.test"}, nil, `"NoMatchingListenerHostname"`}, {[]v1.Hostname{"mine.test", "a.b.wild.test"}, []string{"mine.test", "a.b.wild.test"}, ""},
		{nil, []string{""}, ""},
	} {
		o := shared()
		challenge := v1.HTTPRouteRule{Matches: []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Type: to(v1.PathMatchExact), Value: to("/.well-known/acme-challenge/token")}}}}
		o.HTTPRoutes = []*v1.HTTPRoute{{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "route", UID: "route"}, Spec: v1.HTTPRouteSpec{
			CommonRouteSpec: v1.CommonRouteSpec{ParentRefs: []v1.ParentReference{{Name: "front", Namespace: to(v1.Namespace("infra"))}}}, Hostnames: c.hosts, Rules: []v1.HTTPRouteRule{challenge},
		}}}
		result := Translate(o)
		var served []string
		for _, r := range result.Config.Routes {
			served = append(served, r.Host)
		}
		told := statuses(result.Statuses(Applied{}))
		if !slices.Equal(served, c.served) || c.reason != "" && (!strings.Contains(told, c.reason) || !strings.Contains(told, "belongs to Ingress shop/w")) {
			t.Errorf("%s: served are %s\n%s", c.hosts, served, told)
		}
		if o = own(o); len(Translate(o).Config.Routes) != max(len(c.hosts), 1) {
			t.Errorf("%s at an address of its own: %+v", c.hosts, Translate(o).Config.Routes)
		}
	}
}

// TestACME: a listener of HTTPS with a host gets a certificate into its own Secret and serves meanwhile, if its object asks for it. Nobody gets one for a host of
// another namespace or of an Ingress, or into a Secret that others have made or that is another namespace's.
func TestACME(t *testing.T) {
	of := func(name string) *v1.ListenerTLSConfig {
		return &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: v1.ObjectName(name)}}}
	}
	elsewhere := of("new")
	elsewhere.CertificateRefs[0].Namespace = to(v1.Namespace("shop"))
	asks := map[string]string{translate.AnnotationACME: "true"}
	for name, c := range map[string]struct {
		listener    v1.ListenerEntry
		annotations map[string]string
		wanted      string
		served      bool
		told        string
	}{
		"new":              {entry(443, v1.HTTPSProtocolType, "mine.test", of("new")), asks, "evil/new [mine.test] by ListenerSet evil/more; ", true, "it comes by ACME"},
		"cert-manager":     {entry(443, v1.HTTPSProtocolType, "mine.test", of("new")), map[string]string{"kubernetes.io/tls-acme": "true", "cert-manager.io/issuer": "x"}, "", false, "there is no Secret evil/new"},
		"does not ask":     {entry(443, v1.HTTPSProtocolType, "mine.test", of("new")), nil, "", false, "there is no Secret evil/new"},
		"renewed":          {entry(443, v1.HTTPSProtocolType, "mine.test", of("ours")), asks, "evil/ours [mine.test] by ListenerSet evil/more; ", true, ""},
		"made by others":   {entry(443, v1.HTTPSProtocolType, "mine.test", of("by-hand")), asks, "", true, ""},
		"elsewhere":        {entry(443, v1.HTTPSProtocolType, "mine.test", elsewhere), asks, "", false, "no ReferenceGrant"},
		"of an Ingress":    {entry(443, v1.HTTPSProtocolType, "shop.test", of("new")), asks, "", false, "belongs to Ingress shop/web"},
		"another's host":   {entry(443, v1.HTTPSProtocolType, "claimed.test", of("new")), asks, "", false, "host claimed.test belongs to namespace shop"},
		"far below":        {entry(443, v1.HTTPSProtocolType, "b.a.claimed.test", of("new")), asks, "evil/new [b.a.claimed.test] by ListenerSet evil/more; ", true, "it comes by ACME"},
		"another's below":  {entry(443, v1.HTTPSProtocolType, "a.claimed.test", of("new")), asks, "", false, "host a.claimed.test belongs to namespace shop"},
		"below an Ingress": {entry(443, v1.HTTPSProtocolType, "a.wild.test", of("new")), asks, "", false, "belongs to Ingress shop/wild"},
		"wildcard":         {entry(443, v1.HTTPSProtocolType, "*.mine.test", of("new")), asks, "", false, "is a wildcard"},
		"no host":          {entry(443, v1.HTTPSProtocolType, "", of("new")), asks, "", false, "the listener has no hostname"},
		"not HTTPS":        {entry(443, v1.TLSProtocolType, "mine.test", of("new")), asks, "", false, "there is no Secret evil/new"},
	} {
		o := shared(c.listener)
		o.ListenerSets[0].Annotations = c.annotations
		o.Orders = translate.NewOrders()
		for _, host := range []string{"claimed.test", "*.claimed.test"} {
			o.Orders.Claim(host, "shop", time.Unix(1, 0))
		}
		o.Certificates = map[types.NamespacedName]translate.Certificate{
			{Namespace: "evil", Name: "by-hand"}: {Chain: "chain", Key: "key"}, {Namespace: "evil", Name: "ours"}: {Chain: "chain", Key: "key", Issuer: "https://acme.test"},
		}
		Held(o)
		result, wanted := Translate(o), ""
		for _, w := range o.Orders.List() {
			wanted += fmt.Sprintf("%s %s by %s %s/%s; ", w.Secret, w.Hosts, w.Owners[0].Kind, w.Owners[0].Namespace, w.Owners[0].Name)
		}
		served := slices.ContainsFunc(result.Config.Listeners, func(l gateway.Listener) bool { return l.Name == "listenerset/evil/more/l" })
		if told := statuses(result.Statuses(Applied{})); wanted != c.wanted || served != c.served || !strings.Contains(told, c.told) {
			t.Errorf("%s: wanted are %q, served %v, %s", name, wanted, served, told)
		}
	}
	o := own(shared(entry(443, v1.HTTPSProtocolType, "mine.test", of("new"))))
	o.ListenerSets[0].Annotations, o.Orders = asks, translate.NewOrders()
	Held(o)
	Translate(o)
	if all := o.Orders.List(); len(all) != 1 || !slices.Equal(all[0].Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.9")}) {
		t.Errorf("at an address of its own: %+v", all)
	}
	o = shared(entry(443, v1.HTTPSProtocolType, "mine.test", of("new")))
	o.ListenerSets[0].Annotations = asks
	if told := statuses(Translate(o).Statuses(Applied{})); !strings.Contains(told, "the servers have no --acme-email") {
		t.Error(told)
	}
}
