package gatewayapi

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// On the addresses of the servers a host belongs to Ingresses or to the Gateway API, whichever has the oldest object for it: whoever may make an object of one
// takes nothing of the other.

// Held returns the hosts that listeners and routes serve where Ingresses are served too, for the translation of these. It tells the orders of all claims,
// which have to be known before anything asks for certificates.
func Held(o Objects) map[string]translate.Holder {
	orders := o.Orders
	o.Ingresses, o.Hosts, o.Yields = true, nil, nil
	if orders != nil {
		o.Orders = translate.NewOrders()
	}
	t := read(o, map[string]translate.Holder{})
	t.in.Orders = orders
	t.claims()
	for _, r := range t.routes {
		t.attachments(r)
	}
	return t.held
}

// hold notes that an object names a host of a listener, as a claim of its certificate too: a challenge is answered at all addresses. Where Ingresses are served
// names below a wildcard are nobody's. Of the same second the listener's own claim comes first, and its namespace may ask in any case, as the route names it.
func (t *translation) hold(l *listener, host, kind string, of metav1.Object) {
	if t.held == nil || host == "" {
		return
	}
	h := translate.Holder{Kind: kind, NamespacedName: keyOf(of), Since: of.GetCreationTimestamp().Time}
	if by := l.owner.GetCreationTimestamp().Time; by.After(h.Since) { // where no listener was, a route had nothing
		h.Since = by
	}
	if !l.besideIngresses() || !strings.HasPrefix(host, "*.") {
		t.claim(host, h.Namespace, h.Since.Add(1), l.owner.GetNamespace())
	}
	if !l.besideIngresses() || !t.inUse[l.configName()] {
		return
	}
	if other, ok := t.held[host]; !ok || h.Before(other.Since, other.Namespace, other.Name) {
		t.held[host] = h
	}
}

// besideIngresses reports whether a listener has a port of Ingresses at the addresses of the servers.
func (l *listener) besideIngresses() bool {
	return len(l.gateway.own) == 0 && !l.gateway.pending && (l.port == translate.PortHTTP || l.port == translate.PortHTTPS)
}

// ingressOf returns the Ingress that has a host of a listener.
func (t *translation) ingressOf(l *listener, host string) (types.NamespacedName, bool) {
	if host == "" || !l.besideIngresses() {
		return types.NamespacedName{}, false
	}
	if of, ok := t.in.Hosts[host]; ok {
		return of, true
	}
	if _, kept := slices.BinarySearch(t.in.Yields, host); kept {
		return types.NamespacedName{}, false
	}
	_, parent, _ := strings.Cut(host, ".")
	of, ok := t.in.Hosts["*."+parent]
	return of, ok
}

// yield has a listener conflict with an Ingress that has its host. What its wildcard, or no host, covers otherwise is told apart by the name in each request
// or handshake.
func (t *translation) yield(l *listener) {
	if of, taken := t.ingressOf(l, l.host); taken {
		l.conflicted = ofIngress(v1.ListenerReasonHostnameConflict, l.host, of)
	}
}

func ofIngress[R ~string](reason R, host string, of types.NamespacedName) *fault {
	return faulty(reason, "host %s belongs to Ingress %s on the addresses of the servers, which is older: delete the Ingress, name other hosts, or give the Gateway an address of its own (--lb-pool)", host, of)
}
