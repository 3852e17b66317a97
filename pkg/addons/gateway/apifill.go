package gateway

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// fill changes the status of an object to what it should be, and returns its conditions with the part of the object that each group is about.
func (w *statusWriter) fill(o object, s gatewayapi.Status, servers []string) (all map[string][]metav1.Condition) {
	all = map[string][]metav1.Condition{}
	switch o := o.(type) {
	case *v1.GatewayClass:
		all[""] = since(s.Class.Conditions, o.Status.Conditions)
		o.Status.Conditions, o.Status.SupportedFeatures = all[""], s.Class.SupportedFeatures
	case *v1.Gateway:
		next := *s.Gateway.DeepCopy()
		w.addresses(o, &next, servers)
		next.Conditions = since(next.Conditions, o.Status.Conditions)
		for i, l := range next.Listeners {
			at := slices.IndexFunc(o.Status.Listeners, func(old v1.ListenerStatus) bool { return old.Name == l.Name })
			if at >= 0 {
				next.Listeners[i].Conditions = since(l.Conditions, o.Status.Listeners[at].Conditions)
			} else {
				next.Listeners[i].Conditions = since(l.Conditions, nil)
			}
			all["listener "+string(l.Name)+": "] = next.Listeners[i].Conditions
		}
		o.Status, all[""] = next, next.Conditions
	case *v1.ListenerSet:
		next := *s.ListenerSet.DeepCopy()
		next.Conditions = since(next.Conditions, o.Status.Conditions)
		for i, l := range next.Listeners {
			at := slices.IndexFunc(o.Status.Listeners, func(old v1.ListenerEntryStatus) bool { return old.Name == l.Name })
			if at >= 0 {
				next.Listeners[i].Conditions = since(l.Conditions, o.Status.Listeners[at].Conditions)
			} else {
				next.Listeners[i].Conditions = since(l.Conditions, nil)
			}
			all["listener "+string(l.Name)+": "] = next.Listeners[i].Conditions
		}
		o.Status, all[""] = next, next.Conditions
	case *v1.BackendTLSPolicy:
		others := slices.DeleteFunc(slices.Clone(o.Status.Ancestors), func(a v1.PolicyAncestorStatus) bool { return a.ControllerName == translate.Controller })
		next := others
		for _, a := range s.Ancestors {
			at := slices.IndexFunc(o.Status.Ancestors, func(old v1.PolicyAncestorStatus) bool {
				return old.ControllerName == translate.Controller && equality.Semantic.DeepEqual(old.AncestorRef, a.AncestorRef)
			})
			a.Conditions = since(a.Conditions, nil)
			if at >= 0 {
				a.Conditions = since(a.Conditions, o.Status.Ancestors[at].Conditions)
			}
			if len(next) < mostAncestors {
				next = append(next, a)
			}
			all[""] = a.Conditions
		}
		o.Status.Ancestors = append([]v1.PolicyAncestorStatus{}, next...) // not null, which the API refuses
	default:
		route, ok := routeStatusOf(o)
		if !ok {
			return all
		}
		next := slices.DeleteFunc(slices.Clone(route.Parents), func(p v1.RouteParentStatus) bool { return p.ControllerName == translate.Controller })
		for _, p := range s.Parents {
			at := slices.IndexFunc(route.Parents, func(old v1.RouteParentStatus) bool {
				return old.ControllerName == translate.Controller && equality.Semantic.DeepEqual(old.ParentRef, p.ParentRef)
			})
			var before []metav1.Condition
			if at >= 0 {
				before = route.Parents[at].Conditions
			}
			p.Conditions = since(p.Conditions, before)
			next = append(next, p)
			all["at "+string(p.ParentRef.Name)+": "] = p.Conditions
		}
		route.Parents = append([]v1.RouteParentStatus{}, next...) // not null, which the API refuses
	}
	return all
}

// since gives conditions the times at which their status changed.
func since(next, before []metav1.Condition) []metav1.Condition {
	out := slices.Clone(next)
	for i := range out {
		out[i].LastTransitionTime = metav1.Now().Rfc3339Copy()
		if old := meta.FindStatusCondition(before, out[i].Type); old != nil && old.Status == out[i].Status {
			out[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return out
}
