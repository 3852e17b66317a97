package gatewayapi

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// A host of an Ingress is served by Ingresses only on the addresses of the servers: whoever may attach a route or a listener to a Gateway takes nothing of it.

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
	_, parent, _ := strings.Cut(host, ".")
	of, ok := t.in.Hosts["*."+parent]
	return of, ok
}

// yield has a listener conflict with an Ingress that has its host. One for streams of TLS, whose host decides before there is a request, does with
// each Ingress that has a host among its own.
func (t *translation) yield(l *listener) {
	host := l.host
	of, taken := t.ingressOf(l, host)
	if l.protocol == v1.TLSProtocolType && !taken && l.besideIngresses() {
		for _, h := range slices.Sorted(maps.Keys(t.in.Hosts)) {
			if both, ok := intersect(l.host, h); ok && both == h {
				host, of, taken = h, t.in.Hosts[h], true
				break
			}
		}
	}
	if taken {
		l.conflicted = ofIngress(v1.ListenerReasonHostnameConflict, host, of)
	}
}

func ofIngress[R ~string](reason R, host string, of types.NamespacedName) *fault {
	if host == "" {
		return faulty(reason, "Ingress %s has every host without rules on the addresses of the servers: name hosts of the listener, or give the Gateway an address of its own (--lb-pool)", of)
	}
	return faulty(reason, "host %s belongs to Ingress %s on the addresses of the servers: delete the Ingress, name other hosts, or give the Gateway an address of its own (--lb-pool)", host, of)
}
