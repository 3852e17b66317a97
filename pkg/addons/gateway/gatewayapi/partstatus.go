package gatewayapi

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// programmed returns why a listener does not serve.
func (l *listener) programmed(applied Applied) *fault {
	switch {
	case l.conflicted != nil:
		return l.conflicted
	case l.rejected != nil:
		return faulty(v1.ListenerReasonInvalid, "%s", l.rejected.message)
	case l.broken != nil:
		return faulty(v1.ListenerReasonInvalid, "%s", l.broken.message)
	case l.gateway.rejected != nil:
		return faulty(v1.ListenerReasonInvalid, "%s", l.gateway.rejected.message)
	case l.gateway.pending:
		return faulty(v1.ListenerReasonPending, "the Gateway has no address yet")
	case applied.Problem != "":
		return faulty(v1.ListenerReasonPending, "%s", applied.Problem)
	case applied.Refused[uint16(l.port)] != "":
		return faulty(v1.ListenerReasonPortUnavailable, "port %d cannot be served: %s", l.port, applied.Refused[uint16(l.port)])
	}
	return nil
}

func (l *listener) conditions(o metav1.Object, applied Applied) []metav1.Condition {
	rejected := l.rejected
	if l.conflicted != nil {
		rejected = l.conflicted
	}
	conflicted := metav1.Condition{
		Type: string(v1.ListenerConditionConflicted), Status: metav1.ConditionFalse, Reason: string(v1.ListenerReasonNoConflicts), ObservedGeneration: o.GetGeneration(),
	}
	if l.conflicted != nil {
		conflicted.Status, conflicted.Reason, conflicted.Message = metav1.ConditionTrue, l.conflicted.reason, l.conflicted.message
	}
	return []metav1.Condition{
		condition(o, v1.ListenerConditionAccepted, v1.ListenerReasonAccepted, rejected),
		condition(o, v1.ListenerConditionProgrammed, v1.ListenerReasonProgrammed, l.programmed(applied)),
		condition(o, v1.ListenerConditionResolvedRefs, v1.ListenerReasonResolvedRefs, l.unresolved),
		conflicted,
	}
}

// fault returns why a ListenerSet is not accepted.
func (s *setState) fault() *fault {
	if s.rejected != nil {
		return s.rejected
	}
	for _, l := range s.listeners {
		if l.valid() && l.broken == nil {
			return nil
		}
	}
	return faulty(v1.ListenerSetReasonListenersNotValid, "none of its listeners is valid")
}

func (s *setState) status(applied Applied) *v1.ListenerSetStatus {
	out := &v1.ListenerSetStatus{}
	idle := s.fault()
	for _, l := range s.listeners {
		out.Listeners = append(out.Listeners, v1.ListenerEntryStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: int32(len(l.attached)), Conditions: l.conditions(s.object, applied),
		})
	}
	if idle == nil && !slices.ContainsFunc(s.listeners, func(l *listener) bool { return l.programmed(applied) == nil }) {
		idle = faulty(v1.ListenerSetReasonPending, "none of its listeners can serve")
	}
	out.Conditions = []metav1.Condition{
		condition(s.object, v1.ListenerSetConditionAccepted, v1.ListenerSetReasonAccepted, s.fault()),
		condition(s.object, v1.ListenerSetConditionProgrammed, v1.ListenerSetReasonProgrammed, idle),
	}
	return out
}

func (r *route) status() (out []v1.RouteParentStatus) {
	for _, p := range r.attached {
		rejected := p.rejected
		if rejected == nil && r.unsupported != nil && !r.served {
			rejected = r.unsupported
		}
		s := v1.RouteParentStatus{ParentRef: p.ref, ControllerName: translate.Controller, Conditions: []metav1.Condition{
			condition(r.object, v1.RouteConditionAccepted, v1.RouteReasonAccepted, rejected),
			condition(r.object, v1.RouteConditionResolvedRefs, v1.RouteReasonResolvedRefs, r.unresolved),
		}}
		if r.unsupported != nil && r.served {
			c := condition(r.object, v1.RouteConditionPartiallyInvalid, v1.RouteReasonUnsupportedValue, nil)
			c.Message = "Dropped Rule: " + r.unsupported.message // the API prescribes the beginning
			s.Conditions = append(s.Conditions, c)
		}
		out = append(out, s)
	}
	return out
}

func (p *policy) status() (out []v1.PolicyAncestorStatus) {
	rejected := p.rejected
	if rejected == nil {
		rejected = p.conflicted
	}
	group, kind := v1.Group(v1.GroupName), v1.Kind(kindGateway)
	for _, g := range p.ancestors {
		namespace := v1.Namespace(g.object.Namespace)
		out = append(out, v1.PolicyAncestorStatus{
			AncestorRef:    v1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: v1.ObjectName(g.object.Name)},
			ControllerName: translate.Controller,
			Conditions: []metav1.Condition{
				condition(p.object, v1.PolicyConditionAccepted, v1.PolicyReasonAccepted, rejected),
				condition(p.object, v1.BackendTLSPolicyConditionResolvedRefs, v1.BackendTLSPolicyReasonResolvedRefs, p.unresolved),
			},
		})
	}
	return out
}
