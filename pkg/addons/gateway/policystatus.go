package gateway

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/routepolicy"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// policies are RoutePolicies with what their status should be.
type policies struct {
	all      []*routepolicy.RoutePolicy
	statuses []routepolicy.Status
}

// writePolicies writes the status of RoutePolicies. What other controllers have written into it stays.
func (w *statusWriter) writePolicies(ctx context.Context, p policies) error {
	var errs []error
	for i, policy := range p.all {
		want := merged(policy.Status, p.statuses[i])
		if equality.Semantic.DeepEqual(policy.Status, want) {
			continue
		}
		errs = append(errs, notGone(kube.MergePatch(ctx, w.policies.Resource(routepolicy.API()).Namespace(policy.Namespace), policy.Name, map[string]any{
			"metadata": map[string]any{"uid": policy.UID}, "status": want,
		}, "status")))
	}
	return errors.Join(errs...)
}

// merged returns a status with our ancestors as they should be. The time of a condition is that of its last change.
func merged(now, want routepolicy.Status) (out routepolicy.Status) {
	for _, a := range now.Ancestors {
		if a.ControllerName != translate.Controller {
			out.Ancestors = append(out.Ancestors, a)
		}
	}
	for _, a := range want.Ancestors {
		a.Conditions = since(a.Conditions, before(now.Ancestors, func(old routepolicy.Ancestor) ([]metav1.Condition, bool) {
			return old.Conditions, old.AncestorRef == a.AncestorRef && old.ControllerName == a.ControllerName
		}))
		out.Ancestors = append(out.Ancestors, a)
	}
	return out
}
