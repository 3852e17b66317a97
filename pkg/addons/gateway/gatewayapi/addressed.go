package gatewayapi

import (
	"fmt"
	"maps"
	"slices"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// Addressed returns our Gateways as far as their addresses depend on them.
func (r Result) Addressed() (out []addon.Gateway) {
	if r.done == nil {
		return nil
	}
	for _, g := range r.done.gateways {
		o := addon.Gateway{
			NamespacedName: keyOf(g.object), UID: g.object.UID, Created: g.object.CreationTimestamp.Time,
			Labels: g.object.Labels, Annotations: g.object.Annotations, Has: g.own,
		}
		if i := g.object.Spec.Infrastructure; i != nil {
			o.Labels, o.Annotations = overlaid(o.Labels, i.Labels), overlaid(o.Annotations, i.Annotations)
		}
		for _, a := range g.object.Spec.Addresses {
			if or(a.Type, v1.IPAddressType) == v1.IPAddressType {
				o.Asked = append(o.Asked, a.Value)
			}
		}
		for _, l := range g.listeners {
			if l.programmed(Applied{}) != nil && !g.pending {
				continue
			}
			transport := "TCP"
			if l.protocol == v1.UDPProtocolType {
				transport = "UDP"
			}
			if p := fmt.Sprintf("%d/%s", l.port, transport); l.valid() && l.broken == nil && !slices.Contains(o.Ports, p) {
				o.Ports = append(o.Ports, p)
			}
		}
		out = append(out, o)
	}
	return out
}

// overlaid returns the labels or annotations of a Gateway with those of its spec.infrastructure, where other implementations look for what an address is to be
// like, as they are on the Service that they make.
func overlaid[K, V ~string](own map[string]string, over map[K]V) map[string]string {
	out := make(map[string]string, len(own)+len(over))
	maps.Copy(out, own)
	for k, v := range over {
		out[string(k)] = string(v)
	}
	return out
}
