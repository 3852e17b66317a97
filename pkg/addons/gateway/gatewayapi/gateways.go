package gatewayapi

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// The kinds of the API, and of what its objects refer to.
const (
	kindGateway     = "Gateway"
	kindListenerSet = "ListenerSet"
	kindSecret      = "Secret"
	kindConfigMap   = "ConfigMap"
	kindService     = "Service"
)

// fault is why something is not as it was meant.
type fault struct{ reason, message string }

func faulty[R ~string](reason R, format string, values ...any) *fault {
	return &fault{string(reason), fmt.Sprintf(format, values...)}
}

// gatewayState is a Gateway of our classes.
type gatewayState struct {
	object     *v1.Gateway
	listeners  []*listener // its own, then those of ListenerSets
	held       map[portKey]*held
	rejected   *fault // why it is not accepted
	unresolved *fault // why its client certificate is not used
	// clientCertificate is the source of the gateway's own certificate for backends.
	clientCertificate string
	// insecure says that clients without a valid certificate are served on a listener that asks for one.
	insecure bool
	own      []netip.Addr // addresses that it has for itself
	pending  bool         // it has no address yet
	foreign  []string     // addresses that it asks for
}

// setState is a ListenerSet whose Gateway is one of ours.
type setState struct {
	object    *v1.ListenerSet
	gateway   *gatewayState
	listeners []*listener
	rejected  *fault
}

// gateway reads a Gateway.
func (t *translation) gateway(g *v1.Gateway) *gatewayState {
	s := &gatewayState{object: g}
	var addresses []string
	for _, a := range g.Status.Addresses {
		if or(a.Type, v1.IPAddressType) == v1.IPAddressType {
			addresses = append(addresses, a.Value)
		}
	}
	s.own = addon.Own(g.Status.Conditions, addresses)
	s.pending = t.in.Pools && len(s.own) == 0 && (len(addresses) == 0 || ownsAddresses(g))
	for _, a := range g.Spec.Addresses {
		if kind := or(a.Type, v1.IPAddressType); kind != v1.IPAddressType {
			s.rejected = faulty(v1.GatewayReasonUnsupportedAddress, "addresses of type %s are not supported, only those of type %s", kind, v1.IPAddressType)
		} else if a.Value != "" {
			s.foreign = append(s.foreign, a.Value)
		}
	}
	if i := g.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		s.rejected = faulty(v1.GatewayReasonInvalidParameters, "%s %s is not an object with parameters for the gateway: there are none", i.ParametersRef.Kind, i.ParametersRef.Name)
	}
	if g.Spec.TLS != nil && g.Spec.TLS.Backend != nil && g.Spec.TLS.Backend.ClientCertificateRef != nil {
		source, problem := t.certificate(kindGateway, g.Namespace, *g.Spec.TLS.Backend.ClientCertificateRef, v1.ListenerConditionReason(v1.GatewayReasonInvalidClientCertificateRef))
		s.clientCertificate, s.unresolved = source, problem
	}
	for _, l := range g.Spec.Listeners {
		s.listeners = append(s.listeners, &listener{
			owner: g, kind: kindGateway, gateway: s, name: l.Name, host: host(l.Hostname), port: l.Port, protocol: l.Protocol, tls: l.TLS, allowed: l.AllowedRoutes,
		})
	}
	return s
}

func ownsAddresses(g *v1.Gateway) bool {
	for _, c := range g.Status.Conditions {
		if c.Type == addon.OwnAddress {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// listenerSets gives the Gateways the listeners of ListenerSets, the oldest first.
func (t *translation) listenerSets() {
	all := slices.Clone(t.in.ListenerSets)
	slices.SortFunc(all, translate.Older)
	for _, o := range all {
		p := o.Spec.ParentRef
		g := t.byName[types.NamespacedName{Namespace: string(or(p.Namespace, v1.Namespace(o.Namespace))), Name: string(p.Name)}]
		if g == nil || or(p.Group, v1.GroupName) != v1.GroupName || or(p.Kind, kindGateway) != kindGateway || o.DeletionTimestamp != nil {
			continue
		}
		s := &setState{object: o, gateway: g}
		t.sets = append(t.sets, s)
		t.setNamed[keyOf(o)] = s
		var from *v1.FromNamespaces
		var selector *metav1.LabelSelector
		if a := g.object.Spec.AllowedListeners; a != nil && a.Namespaces != nil {
			from, selector = a.Namespaces.From, a.Namespaces.Selector
		}
		switch {
		case !t.allowed(or(from, v1.NamespacesFromNone), selector, g.object.Namespace, o.Namespace):
			s.rejected = faulty(v1.ListenerSetReasonNotAllowed, "Gateway %s allows no ListenerSets of namespace %s (spec.allowedListeners)", keyOf(g.object), o.Namespace)
			continue
		case g.rejected != nil:
			s.rejected = faulty(v1.ListenerSetReasonParentNotAccepted, "Gateway %s is not accepted: %s", keyOf(g.object), g.rejected.message)
			continue
		}
		for _, l := range o.Spec.Listeners {
			s.listeners = append(s.listeners, &listener{
				owner: o, kind: kindListenerSet, gateway: g, set: s, name: l.Name, host: host(l.Hostname), port: l.Port, protocol: l.Protocol, tls: l.TLS, allowed: l.AllowedRoutes,
			})
		}
		g.listeners = append(g.listeners, s.listeners...)
	}
}

// allowed reports whether a namespace is one of those that are allowed in another.
func (t *translation) allowed(from v1.FromNamespaces, selector *metav1.LabelSelector, own, namespace string) bool {
	switch from {
	case v1.NamespacesFromAll:
		return true
	case v1.NamespacesFromSame:
		return own == namespace
	case v1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		of, known := t.in.Namespaces[namespace]
		return err == nil && known && s.Matches(labels.Set(of))
	}
	return false
}
