package servicelb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// The finalizer of load balancers, as in upstream's cloud providers, and that of k3s, which k3s cannot remove any more.
const (
	finalizer    = "service.kubernetes.io/load-balancer-cleanup"
	k3sFinalizer = "svccontroller.k3s.cattle.io/daemonset"
)

// writeTimeout is how long one request may take.
const writeTimeout = 10 * time.Second

// applied returns the Service with an outcome applied.
func applied(o outcome) *corev1.Service {
	if o.release {
		return released(o.service)
	}
	s := o.service.DeepCopy()
	s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == k3sFinalizer })
	if !slices.Contains(s.Finalizers, finalizer) {
		s.Finalizers = append(s.Finalizers, finalizer)
	}
	s.Status.LoadBalancer.Ingress = o.ingress
	meta.SetStatusCondition(&s.Status.Conditions, o.ready)
	if o.refused == nil {
		meta.RemoveStatusCondition(&s.Status.Conditions, corev1.LoadBalancerPortsError)
	} else {
		meta.SetStatusCondition(&s.Status.Conditions, *o.refused)
	}
	return s
}

// released returns the Service without addresses, conditions and finalizer.
func released(old *corev1.Service) *corev1.Service {
	s := old.DeepCopy()
	s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == k3sFinalizer || f == finalizer })
	s.Status.LoadBalancer.Ingress = nil
	meta.RemoveStatusCondition(&s.Status.Conditions, corev1.LoadBalancerPortsError)
	meta.RemoveStatusCondition(&s.Status.Conditions, readyCondition)
	return s
}

// patch writes the difference between two versions of a Service, and returns the result; nil if there is no difference, or
// if the Service was deleted or replaced meanwhile.
func patch(ctx context.Context, client kubernetes.Interface, old, changed *corev1.Service) (*corev1.Service, error) {
	if equality.Semantic.DeepEqual(old, changed) {
		return nil, nil
	}
	anonymous := *old
	anonymous.UID = "" // so the patch contains the UID, and does not change a Service that was created anew under this name
	if len(changed.Status.LoadBalancer.Ingress) > 0 {
		anonymous.ResourceVersion = "" // nor give addresses to one whose ports have changed meanwhile
	}
	before, err := json.Marshal(anonymous)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(changed)
	if err != nil {
		return nil, err
	}
	data, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Service{})
	if err != nil {
		return nil, fmt.Errorf("comparing Service %s/%s: %w", old.Namespace, old.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	got, err := client.CoreV1().Services(old.Namespace).Patch(ctx, old.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{FieldManager: "coracle"}, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("writing the status of Service %s/%s: %w", old.Namespace, old.Name, err)
	}
	return got, nil
}

// annotate sets an annotation of a Node; "" removes it.
func annotate(ctx context.Context, client kubernetes.Interface, node, key, text string) error {
	value := &text
	if text == "" {
		value = nil
	}
	err := kube.AnnotateNode(ctx, client, node, map[string]*string{key: value})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotating node %s with %s: %w", node, key, err)
	}
	return nil
}

// tell creates an Event for a Service.
func tell(ctx context.Context, client kubernetes.Interface, s *corev1.Service, kind, reason, message string) error {
	about := corev1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	return kube.SendEvent(ctx, client, corev1.EventSource{Component: "coracle"}, about, kind, reason, message)
}

// event is an Event that is to be created.
type event struct{ kind, reason, message string }

// events returns the Events for a change.
func events(old, changed *corev1.Service) (out []event) {
	if before, after := ipsOf(old), ipsOf(changed); before != after {
		out = append(out, event{corev1.EventTypeNormal, "UpdatedLoadBalancer", "the addresses are " + after + ", before: " + before})
	}
	before, after := condition(old, corev1.LoadBalancerPortsError), condition(changed, corev1.LoadBalancerPortsError)
	if after != nil && (before == nil || before.Message != after.Message) {
		out = append(out, event{corev1.EventTypeWarning, portTaken, after.Message})
	}
	before, after = condition(old, readyCondition), condition(changed, readyCondition)
	if after != nil && after.Reason != assigned && after.Reason != portTaken && (before == nil || before.Reason != after.Reason) {
		kind := corev1.EventTypeWarning
		if after.Reason == noEndpoints || after.Reason == waiting { // normal before the first pod is ready
			kind = corev1.EventTypeNormal
		}
		out = append(out, event{kind, after.Reason, after.Message})
	}
	return out
}

// ipsOf joins a Service's addresses.
func ipsOf(s *corev1.Service) string {
	var ips []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		ips = append(ips, i.IP)
	}
	if len(ips) == 0 {
		return "none"
	}
	return strings.Join(ips, ", ")
}
