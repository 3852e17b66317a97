package servicelb

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// trimService keeps the fields of a Service that a plan reads and patch compares.
func trimService(s, small *corev1.Service) {
	small.Spec, small.Status = s.Spec, s.Status
	small.Labels, small.Finalizers = s.Labels, s.Finalizers // selectors of pools can name any label
	small.Annotations = pick(s.Annotations, slices.Concat([]string{k3sTolerations}, wantedAddresses[:], wantedPool[:], sharingKey[:])...)
}

// trimNode keeps the fields of a Node that a plan reads, so that heartbeats change nothing.
func trimNode(n, small *corev1.Node) {
	small.Labels = pick(n.Labels, k3sEnable, ownEnable, k3sPool, ownPool, corev1.LabelNodeExcludeBalancers, controlPlane)
	small.Annotations = pick(n.Annotations, askedAnnotation, heldAnnotation, kube.AnnouncesAnnotation, kube.SeenAddresses, kube.AllowedAddresses)
	for _, t := range n.Spec.Taints {
		small.Spec.Taints = append(small.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			small.Status.Addresses = append(small.Status.Addresses, a)
		}
	}
	small.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: kube.NodeReadiness(n)}}
}

// trimSlice keeps the nodes of the endpoints.
func trimSlice(slice, small *discoveryv1.EndpointSlice) {
	small.Labels = pick(slice.Labels, discoveryv1.LabelServiceName)
	seen := map[string]bool{}
	for _, e := range slice.Endpoints {
		if e.NodeName == nil {
			continue
		}
		few := discoveryv1.Endpoint{NodeName: e.NodeName, Conditions: e.Conditions}
		if key := *e.NodeName + e.Conditions.String(); !seen[key] {
			seen[key] = true
			small.Endpoints = append(small.Endpoints, few)
		}
	}
}

// pick returns the entries of some keys.
func pick(all map[string]string, keys ...string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(k, _ string) bool { return !slices.Contains(keys, k) })
	return out
}
