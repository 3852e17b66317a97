package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// object is one of the Gateway API.
type object interface {
	runtime.Object
	metav1.Object
}

// routeStatusOf returns the status of a route of any kind.
func routeStatusOf(o any) (*v1.RouteStatus, bool) {
	switch o := o.(type) {
	case *v1.HTTPRoute:
		return &o.Status.RouteStatus, true
	case *v1.GRPCRoute:
		return &o.Status.RouteStatus, true
	case *v1.TLSRoute:
		return &o.Status.RouteStatus, true
	case *v1.TCPRoute:
		return &o.Status.RouteStatus, true
	case *v1.UDPRoute:
		return &o.Status.RouteStatus, true
	}
	return nil, false
}

// onlyStatus reports whether two versions of a route or policy differ in nothing that a translation reads. It reads the status of Gateways.
func onlyStatus(old, obj any) bool {
	switch obj.(type) {
	case *v1.HTTPRoute, *v1.GRPCRoute, *v1.TLSRoute, *v1.TCPRoute, *v1.UDPRoute, *v1.BackendTLSPolicy, *v1.ListenerSet, *v1.GatewayClass:
		a, b := old.(object), obj.(object)
		return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() && (a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil) &&
			equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) && equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels())
	}
	return false
}

func gatewaysIn(all []gatewayapi.Status) (n int) {
	for _, s := range all {
		if s.Gateway != nil {
			n++
		}
	}
	return n
}

// plural returns the plural of a kind in paths.
func plural(kind string) string {
	lower := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(lower, "policy"):
		return strings.TrimSuffix(lower, "y") + "ies"
	case strings.HasSuffix(lower, "s"):
		return lower + "es"
	}
	return lower + "s"
}

// writeAPI brings the status of an object to what it should be, and returns the problems in it. servers are the addresses of servers that are ready.
func (w *statusWriter) writeAPI(ctx context.Context, s gatewayapi.Status, objects map[string]cache.Store, servers []string) ([]problem, error) {
	store := objects[plural(s.Kind)]
	if store == nil {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: s.Object.GetNamespace(), Name: s.Object.GetName()}
	name := key.String()
	if key.Namespace == "" {
		name = key.Name
	}
	found, _, _ := store.GetByKey(name)
	live, ok := found.(object)
	if !ok || live.GetUID() != s.Object.GetUID() || live.GetGeneration() != s.Object.GetGeneration() {
		return nil, nil // the next translation tells about it
	}
	next := live.DeepCopyObject().(object)
	conditions := w.fill(next, s, servers)
	about := corev1.ObjectReference{
		APIVersion: v1.GroupVersion.String(), Kind: s.Kind, Namespace: key.Namespace, Name: key.Name, UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(),
	}
	problems := problemsIn(about, conditions)
	if equality.Semantic.DeepEqual(live, next) {
		return problems, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.api.Put().NamespaceIfScoped(key.Namespace, key.Namespace != "").Resource(plural(s.Kind)).Name(key.Name).SubResource("status").Body(next).Do(ctx).Error()
	return problems, notGone(err)
}

// addresses gives a Gateway its addresses: those of pools that it was given, or those of the servers.
func (w *statusWriter) addresses(g *v1.Gateway, next *v1.GatewayStatus, servers []string) {
	kind := v1.IPAddressType
	add := func(value string) {
		next.Addresses = append(next.Addresses, v1.GatewayStatusAddress{Type: &kind, Value: value})
	}
	var missing *metav1.Condition
	d, decided := w.Addresses.Decision(g.UID)
	switch {
	case !decided:
		next.Addresses = g.Status.Addresses
		if own := meta.FindStatusCondition(g.Status.Conditions, addon.OwnAddress); own != nil {
			next.Conditions = append(next.Conditions, *own)
		}
		return
	case d.Own:
		for _, a := range d.Addresses {
			add(a.String())
		}
		next.Conditions = append(next.Conditions, metav1.Condition{
			Type: addon.OwnAddress, Status: metav1.ConditionTrue, Reason: "Assigned", ObservedGeneration: g.Generation,
		})
		if d.Problem != "" && (d.Asked || len(d.Addresses) == 0) {
			missing = &metav1.Condition{Reason: string(v1.GatewayReasonAddressNotAssigned), Message: d.Problem}
			if d.Asked {
				missing.Reason = string(v1.GatewayReasonAddressNotUsable)
			}
		}
	default:
		asked := false
		for _, a := range g.Spec.Addresses {
			if a.Type != nil && *a.Type != v1.IPAddressType || a.Value == "" {
				continue
			}
			asked = true
			if slices.Contains(servers, a.Value) {
				add(a.Value)
			} else {
				missing = &metav1.Condition{Reason: string(v1.GatewayReasonAddressNotUsable), Message: "address " + a.Value + " is not one of a server, nor of a pool (--lb-pool)"}
			}
		}
		if !asked {
			for _, a := range fitting(servers) {
				add(a)
			}
		}
		if len(next.Addresses) == 0 && missing == nil {
			missing = &metav1.Condition{Reason: string(v1.GatewayReasonAddressNotAssigned), Message: "no server is ready"}
		}
	}
	programmed := meta.FindStatusCondition(next.Conditions, string(v1.GatewayConditionProgrammed))
	if missing != nil && programmed != nil && (programmed.Status == metav1.ConditionTrue || programmed.Reason == string(v1.GatewayReasonAddressNotAssigned)) {
		programmed.Status, programmed.Reason, programmed.Message = metav1.ConditionFalse, missing.Reason, missing.Message
	}
}

// addressesOf returns the addresses of servers and agents that are ready, those of servers first: a node's external ones, or its internal ones if it has no others.
func addressesOf(nodes []*corev1.Node) []string {
	place := map[string]int{}
	for _, n := range nodes {
		if kube.NodeReadiness(n) != corev1.ConditionTrue {
			continue
		}
		of := map[corev1.NodeAddressType][]string{}
		for _, a := range n.Status.Addresses {
			of[a.Type] = append(of[a.Type], a.Address)
		}
		addresses, at := of[corev1.NodeExternalIP], 1
		if len(addresses) == 0 {
			addresses = of[corev1.NodeInternalIP]
		}
		if kube.IsServer(n) {
			at = 0
		}
		for _, a := range addresses {
			if other, known := place[a]; !known || at < other {
				place[a] = at
			}
		}
	}
	return slices.SortedFunc(maps.Keys(place), func(a, b string) int { return cmp.Or(place[a]-place[b], strings.Compare(a, b)) })
}

// fitting cuts addresses to as many as a Gateway's status may have, of which one at least is of each family.
func fitting(all []string) []string {
	if len(all) <= mostAddresses {
		return all
	}
	fit, isIPv6 := slices.Clone(all[:mostAddresses]), func(a string) bool { return strings.Contains(a, ":") }
	if other := slices.IndexFunc(all, func(a string) bool { return isIPv6(a) != isIPv6(all[0]) }); other >= mostAddresses {
		fit[mostAddresses-1] = all[other]
	}
	return fit
}

// problemsIn returns what people are told about an object.
func problemsIn(about corev1.ObjectReference, all map[string][]metav1.Condition) (out []problem) {
	var parts []string
	for part := range all {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	for _, part := range parts {
		for _, c := range all[part] {
			switch v1.GatewayConditionReason(c.Reason) {
			case v1.GatewayReasonPending, v1.GatewayReasonAddressNotAssigned, v1.GatewayReasonListenersNotResolved:
				continue // told by another condition, or soon over
			}
			if c.Status == metav1.ConditionFalse && c.Message != "" && c.Type != string(v1.ListenerConditionConflicted) {
				out = append(out, problem{about, c.Reason, part + c.Message})
			}
		}
	}
	return out
}

// writeTimeout bounds a write of a status.
const writeTimeout = 10 * time.Second

// mostAncestors and mostAddresses are how many the API allows in the status of a policy and of a Gateway.
const (
	mostAncestors = 16
	mostAddresses = 16
)
