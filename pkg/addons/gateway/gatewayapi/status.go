package gatewayapi

import (
	"cmp"
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
	for _, f := range features(t.in.Experimental) {
		s.SupportedFeatures = append(s.SupportedFeatures, v1.SupportedFeature{Name: f})
	}
	return s
}

func (t *translation) gatewayStatus(g *gatewayState, applied Applied) *v1.GatewayStatus {
	out := &v1.GatewayStatus{Listeners: []v1.ListenerStatus{}}
	accepted, programmed, rejected := 0, 0, 0
	var unresolved *fault
	for _, l := range g.listeners {
		if l.programmed(applied) == nil {
			programmed++
		}
		if l.set != nil {
			continue
		}
		if l.valid() {
			accepted++
		} else {
			rejected++
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
