package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// The stores of what Gateways are reached by in the cluster, among those of the outcome.
const (
	services       = "services"
	endpointSlices = "endpointslices"
)

// madeByGateway marks the objects that are made for Gateways.
const madeByGateway = "gateway.coracle.dev"

// made is what became of the Service of a Gateway.
type made struct {
	key     string // of what was wanted, and of the versions that there were
	problem string
}

// infrastructure gives each of our Gateways that names labels or annotations in spec.infrastructure a headless Service with its ports and addresses, which has
// them: pods reach the Gateway at its DNS name. The Service belongs to the Gateway and the EndpointSlices belong to the Service: they are deleted with it.
func (w *statusWriter) infrastructure(ctx context.Context, statuses []gatewayapi.Status, objects map[string]cache.Store) (problems []problem, err error) {
	if objects[gateways] == nil {
		return nil, nil
	}
	accepted, ports, now := map[types.UID]bool{}, map[types.UID][]string{}, map[types.UID]made{}
	for _, s := range statuses {
		if s.Gateway != nil && s.Object.GetDeletionTimestamp() == nil {
			accepted[s.Object.GetUID()] = meta.IsStatusConditionTrue(s.Gateway.Conditions, string(v1.GatewayConditionAccepted))
		}
	}
	all, _ := w.Addresses.Gateways()
	for _, g := range all {
		ports[g.UID] = g.Ports
	}
	var errs []error
	for _, g := range kube.ListOf[*v1.Gateway](objects[gateways]) {
		if g.DeletionTimestamp != nil {
			continue
		}
		i := g.Spec.Infrastructure
		named := accepted[g.UID] && i != nil && len(i.Labels)+len(i.Annotations) > 0
		versions, exists := versionsOf(objects, g)
		before, known := w.made[g.UID]
		if !named && !exists && !known { // nearly all
			continue
		}
		service, families := serviceOf(g, ports[g.UID])
		key, _ := json.Marshal([]any{named, service, families, versions})
		result := made{key: string(key), problem: before.problem}
		if before.key != result.key {
			result.problem, err = w.makeService(ctx, g, named, service, families)
			if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // by a quota or a policy: tried again after the next change
				result, err = made{problem: fmt.Sprintf("the API server refuses Service %s for spec.infrastructure: %s", service.Name, apierrors.ReasonForError(err))}, nil
			}
			if err != nil {
				errs, result = append(errs, fmt.Errorf("Service %s/%s of Gateway %s: %w", service.Namespace, service.Name, g.Name, err)), made{}
			}
		}
		if result.problem != "" {
			about := corev1.ObjectReference{APIVersion: v1.GroupVersion.String(), Kind: "Gateway", Namespace: g.Namespace, Name: g.Name, UID: g.UID, ResourceVersion: g.ResourceVersion}
			problems = append(problems, problem{about, "InfrastructureNotMade", result.problem})
		}
		if named || exists {
			now[g.UID] = result
		}
	}
	w.made = now
	return problems, errors.Join(errs...)
}

// versionsOf returns the versions of the Service of a Gateway and of its EndpointSlices, and whether there is a Service of the name.
func versionsOf(objects map[string]cache.Store, g *v1.Gateway) (versions []string, exists bool) {
	for plural, names := range map[string][]string{services: {""}, endpointSlices: {"-ipv4", "-ipv6"}} {
		for _, suffix := range names {
			if objects[plural] == nil {
				continue
			}
			if o, found, _ := objects[plural].GetByKey(g.Namespace + "/" + serviceName(g) + suffix); found {
				exists = exists || plural == services
				versions = append(versions, plural+suffix+o.(metav1.Object).GetResourceVersion())
			}
		}
	}
	slices.Sort(versions)
	return versions, exists
}

// makeService makes the Service of a Gateway and its EndpointSlices, or deletes it when it is not named. It returns why it does neither.
func (w *statusWriter) makeService(ctx context.Context, g *v1.Gateway, named bool, want *corev1.Service, families []*discoveryv1.EndpointSlice) (problem string, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if bad := validation.IsDNS1035Label(want.Name); len(bad) > 0 {
		if !named {
			return "", nil
		}
		return fmt.Sprintf("spec.infrastructure needs a Service %q, which is not a name of one: give the Gateway a name of at most %d letters, digits and hyphens",
			want.Name, validation.DNS1035LabelMaxLength-len(translate.Class)-1), nil
	}
	client := w.client.CoreV1().Services(want.Namespace)
	have, err := client.Get(ctx, want.Name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	ours := err == nil && have.Labels[discoveryv1.LabelManagedBy] == madeByGateway && have.Spec.ClusterIP == corev1.ClusterIPNone
	switch {
	case err != nil && !missing:
		return "", err
	case !named && ours && metav1.IsControlledBy(have, g):
		return "", notGone(client.Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}}))
	case !named:
		return "", nil
	case missing:
		have, err = client.Create(ctx, want, metav1.CreateOptions{})
	case !ours:
		return fmt.Sprintf("spec.infrastructure needs Service %s, which is there and was not made for the Gateway: delete or rename it", want.Name), nil
	case !metav1.IsControlledBy(have, g):
		return "", nil // of a Gateway of this name that is gone: it goes too, which is a change
	default:
		next := have.DeepCopy()
		next.Labels, next.Annotations, next.Spec.Ports, next.Spec.Selector = want.Labels, want.Annotations, want.Spec.Ports, nil
		if !equality.Semantic.DeepEqual(have, next) {
			have, err = client.Update(ctx, next, metav1.UpdateOptions{})
		}
	}
	for _, s := range families {
		if err != nil {
			break
		}
		s.OwnerReferences = []metav1.OwnerReference{ownedBy(have, corev1.SchemeGroupVersion.WithKind("Service"))}
		var found string
		found, err = w.makeSlice(ctx, have, s)
		problem = cmp.Or(problem, found)
	}
	return problem, err
}

// makeSlice makes an EndpointSlice of a Service, or brings the one that there is to what is wanted. One without endpoints is not made.
func (w *statusWriter) makeSlice(ctx context.Context, owner *corev1.Service, want *discoveryv1.EndpointSlice) (problem string, err error) {
	client := w.client.DiscoveryV1().EndpointSlices(want.Namespace)
	have, err := client.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && len(want.Endpoints) == 0:
		return "", nil
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		return "", err
	case err != nil:
		return "", err
	case have.Labels[discoveryv1.LabelManagedBy] != madeByGateway || have.AddressType != want.AddressType:
		return fmt.Sprintf("spec.infrastructure needs EndpointSlice %s, which is there and was not made for the Gateway: delete it", want.Name), nil
	case !metav1.IsControlledBy(have, owner):
		return "", nil // of a Service of this name that is gone: it goes too, which is a change
	}
	next := have.DeepCopy()
	next.Labels, next.Annotations, next.Ports, next.Endpoints = want.Labels, want.Annotations, want.Ports, want.Endpoints
	if !equality.Semantic.DeepEqual(have, next) {
		_, err = client.Update(ctx, next, metav1.UpdateOptions{})
	}
	return "", err
}
