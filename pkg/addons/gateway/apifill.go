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
		for i := range next.Listeners {
			l := &next.Listeners[i]
			l.Conditions = since(l.Conditions, before(o.Status.Listeners, func(old v1.ListenerStatus) ([]metav1.Condition, bool) { return old.Conditions, old.Name == l.Name }))
			all["listener "+string(l.Name)+": "] = l.Conditions
		}
		o.Status, all[""] = next, next.Conditions
	case *v1.ListenerSet:
		next := *s.ListenerSet.DeepCopy()
		next.Conditions = since(next.Conditions, o.Status.Conditions)
		for i := range next.Listeners {
			l := &next.Listeners[i]
			l.Conditions = since(l.Conditions, before(o.Status.Listeners, func(old v1.ListenerEntryStatus) ([]metav1.Condition, bool) { return old.Conditions, old.Name == l.Name }))
			all["listener "+string(l.Name)+": "] = l.Conditions
		}
		o.Status, all[""] = next, next.Conditions
	case *v1.BackendTLSPolicy:
		next := slices.DeleteFunc(slices.Clone(o.Status.Ancestors), func(a v1.PolicyAncestorStatus) bool { return a.ControllerName == translate.Controller })
		for _, a := range s.Ancestors {
			a.Conditions = since(a.Conditions, before(o.Status.Ancestors, func(old v1.PolicyAncestorStatus) ([]metav1.Condition, bool) {
				return old.Conditions, old.ControllerName == translate.Controller && equality.Semantic.DeepEqual(old.AncestorRef, a.AncestorRef)
			}))
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
			p.Conditions = since(p.Conditions, before(route.Parents, func(old v1.RouteParentStatus) ([]metav1.Condition, bool) {
				return old.Conditions, old.ControllerName == translate.Controller && equality.Semantic.DeepEqual(old.ParentRef, p.ParentRef)
			}))
			next = append(next, p)
			all["at "+string(p.ParentRef.Name)+": "] = p.Conditions
		}
		route.Parents = append([]v1.RouteParentStatus{}, next...) // not null, which the API refuses
	}
	return all
}

// before returns the conditions of the part of a status that is the same one as now; nil if there was none.
func before[T any](all []T, of func(T) (conditions []metav1.Condition, same bool)) []metav1.Condition {
	for _, one := range all {
		if conditions, same := of(one); same {
			return conditions
		}
	}
	return nil
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
