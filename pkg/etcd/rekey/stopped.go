package rekey

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// No pod of the copy runs yet. Until its kubelet reports, a pod that is listed as ready would get requests that no process
// answers, and a rollout would be listed as complete.

// stopPod sets a running pod to not ready.
func stopPod(p *corev1.Pod) {
	if p.Status.Phase != corev1.PodRunning {
		return
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionFalse, "Copied", metav1.Now()
		}
	}
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].Ready = false
	}
}

// stopEndpoints sets the pods behind a Service to not ready. Endpoints that another controller or a person wrote stay as they are.
func stopEndpoints(s *discoveryv1.EndpointSlice) {
	if s.Labels[discoveryv1.LabelManagedBy] != "endpointslice-controller.k8s.io" {
		return
	}
	no := false
	for i := range s.Endpoints {
		s.Endpoints[i].Conditions.Ready, s.Endpoints[i].Conditions.Serving = &no, &no
	}
}
