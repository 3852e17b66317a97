package gatewayapi

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// Applied is what came of a configuration in the gateway's process.
type Applied struct {
	Problem string            // why it is not in force, "" if it is
	Refused map[uint16]string // why a port cannot be served
}

// Status is what the status of an object should be, without the times of its conditions. The field of its kind is set.
type Status struct {
	Kind        string
	Object      metav1.Object
	Class       *v1.GatewayClassStatus
	Gateway     *v1.GatewayStatus // without addresses
	ListenerSet *v1.ListenerSetStatus
	Parents     []v1.RouteParentStatus    // ours; of routes
	Ancestors   []v1.PolicyAncestorStatus // ours; of policies
}

// Statuses returns the status of all objects that refer to our Gateways.
func (r Result) Statuses(applied Applied) (out []Status) {
	t := r.done
	if t == nil {
		return nil
	}
	for _, c := range t.in.Classes {
		if c.Spec.ControllerName == translate.Controller {
			out = append(out, Status{Kind: "GatewayClass", Object: c, Class: t.classStatus(c)})
		}
	}
	for _, g := range t.gateways {
		out = append(out, Status{Kind: kindGateway, Object: g.object, Gateway: t.gatewayStatus(g, applied)})
	}
	for _, s := range t.sets {
		out = append(out, Status{Kind: kindListenerSet, Object: s.object, ListenerSet: s.status(applied)})
	}
	for _, r := range t.routes {
		out = append(out, Status{Kind: string(r.kind), Object: r.object, Parents: r.status()})
	}
	for _, p := range t.allPolicies {
		out = append(out, Status{Kind: "BackendTLSPolicy", Object: p.object, Ancestors: p.status()})
	}
	return out
}

// condition returns one that is true, with a reason, or false because of a fault.
func condition[T, R ~string](o metav1.Object, kind T, reason R, f *fault) metav1.Condition {
	c := metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: string(reason), ObservedGeneration: o.GetGeneration()}
	if f != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, f.reason, f.message
	}
	return c
}

func (t *translation) classStatus(c *v1.GatewayClass) *v1.GatewayClassStatus {
	var rejected, version *fault
	if c.Spec.ParametersRef != nil {
		rejected = faulty(v1.GatewayClassReasonInvalidParameters, "the class has no parameters")
	}
	if !strings.HasPrefix(t.in.Version, supportedVersion) {
		version = faulty(v1.GatewayClassReasonUnsupportedVersion, "the definitions of the Gateway API are of version %s: the gateway is made for %sx, and serves what it knows of them",
			cmp.Or(t.in.Version, "unknown"), supportedVersion)
	}
	s := &v1.GatewayClassStatus{Conditions: []metav1.Condition{
		condition(c, v1.GatewayClassConditionStatusAccepted, v1.GatewayClassReasonAccepted, rejected),
		condition(c, v1.GatewayClassConditionStatusSupportedVersion, v1.GatewayClassReasonSupportedVersion, version),
	}}
	for _, f := range features() {
		s.SupportedFeatures = append(s.SupportedFeatures, v1.SupportedFeature{Name: f})
	}
	return s
}

func (t *translation) gatewayStatus(g *gatewayState, applied Applied) *v1.GatewayStatus {
	out := &v1.GatewayStatus{Listeners: []v1.ListenerStatus{}}
	accepted, programmed, rejected := 0, 0, 0
	var unresolved *fault
	for _, l := range g.listeners {
		if l.set != nil {
			if l.programmed(applied) == nil {
				programmed++
			}
			continue
		}
		if l.valid() {
			accepted++
		} else {
			rejected++
		}
		if l.programmed(applied) == nil {
			programmed++
		}
		if l.unresolved != nil {
			unresolved = faulty(v1.GatewayReasonListenersNotResolved, "listener %s: %s", l.name, l.unresolved.message)
		}
		out.Listeners = append(out.Listeners, v1.ListenerStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: int32(len(l.attached)), Conditions: l.conditions(g.object, applied),
		})
	}
	refused, reason := g.rejected, v1.GatewayReasonAccepted
	switch {
	case refused != nil:
	case accepted == 0 && rejected > 0:
		refused = faulty(v1.GatewayReasonListenersNotValid, "none of its listeners is valid")
	case rejected > 0:
		reason = v1.GatewayReasonListenersNotValid
	}
	var idle *fault
	switch {
	case refused != nil:
		idle = faulty(v1.GatewayReasonInvalid, "%s", refused.message)
	case g.pending:
		idle = faulty(v1.GatewayReasonAddressNotAssigned, "the Gateway has no address yet")
	case applied.Problem != "":
		idle = faulty(v1.GatewayReasonPending, "%s", applied.Problem)
	case programmed == 0:
		idle = faulty(v1.GatewayReasonInvalid, "none of its listeners can serve")
	}
	if g.unresolved != nil {
		unresolved = g.unresolved
	}
	out.Conditions = []metav1.Condition{
		condition(g.object, v1.GatewayConditionAccepted, reason, refused),
		condition(g.object, v1.GatewayConditionProgrammed, v1.GatewayReasonProgrammed, idle),
		condition(g.object, v1.GatewayConditionResolvedRefs, v1.GatewayReasonResolvedRefs, unresolved),
	}
	if g.insecure {
		out.Conditions = append(out.Conditions, condition(g.object, v1.GatewayConditionInsecureFrontendValidationMode, v1.GatewayReasonConfigurationChanged, nil))
	}
	attached := int32(0)
	for _, s := range t.sets {
		if s.gateway == g && s.fault() == nil {
			attached++
		}
	}
	if len(t.sets) > 0 || g.object.Spec.AllowedListeners != nil {
		out.AttachedListenerSets = &attached
	}
	return out
}

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
