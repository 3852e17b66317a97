package servicelb

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Labels that select nodes, of k3s and of coracle, and an annotation of k3s.
const (
	k3sEnable      = "svccontroller.k3s.cattle.io/enablelb"
	k3sPool        = "svccontroller.k3s.cattle.io/lbpool"
	k3sTolerations = "svccontroller.k3s.cattle.io/tolerations"

	ownEnable = "node.coracle.io/load-balancer"
	ownPool   = "node.coracle.io/load-balancer-pool"
)

// controlPlane is the label of a server's node.
const controlPlane = kube.ControlPlaneLabel

// toBeDeleted is the taint that the cluster autoscaler sets on a node before it removes it.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// anySelected reports whether a label selects nodes; then only selected nodes serve.
func anySelected(nodes []*corev1.Node) bool {
	for _, n := range nodes {
		_, theirs := n.Labels[k3sEnable]
		_, own := n.Labels[ownEnable]
		if theirs || own {
			return true
		}
	}
	return false
}

// unsuitable says why a node cannot serve a Service, "" if it can. It does not consider whether the node is lost.
func unsuitable(n *corev1.Node, s *corev1.Service, selected bool) string {
	switch {
	case n.DeletionTimestamp != nil:
		return "it is being removed"
	case isExcluded(n):
		return "it has the label " + corev1.LabelNodeExcludeBalancers
	case selected && n.Labels[k3sEnable] != "true" && n.Labels[ownEnable] != "true":
		return fmt.Sprintf("other nodes have the label %s or %s, and it has not", ownEnable, k3sEnable)
	case selected && s.Labels[k3sPool] != "" && n.Labels[k3sPool] != s.Labels[k3sPool]:
		return fmt.Sprintf("it is not in the pool %s=%s", k3sPool, s.Labels[k3sPool])
	case s.Labels[ownPool] != "" && n.Labels[ownPool] != s.Labels[ownPool]:
		return fmt.Sprintf("it is not in the pool %s=%s", ownPool, s.Labels[ownPool])
	}
	if taint := untolerated(n, s); taint != "" {
		return "it has the taint " + taint
	}
	return ""
}

// isExcluded reports whether a node's label says that it serves no load balancer.
func isExcluded(n *corev1.Node) bool {
	text, labelled := n.Labels[corev1.LabelNodeExcludeBalancers]
	on, err := strconv.ParseBool(text)
	return labelled && (on || err != nil)
}

// untolerated returns a taint that the Service does not tolerate, as k3s's pod for the Service would not; "" if there is none.
func untolerated(n *corev1.Node, s *corev1.Service) string {
	for _, t := range n.Spec.Taints {
		if t.Key == toBeDeleted {
			return t.ToString()
		}
	}
	matters := func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule &&
			!strings.HasPrefix(t.Key, "node.kubernetes.io/") && // the readiness and the liveness stand for these
			t.Key != controlPlane && t.Key != "node-role.kubernetes.io/master" && t.Key != "CriticalAddonsOnly"
	}
	if t, found := scheduling.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, tolerations(s), matters, true); found {
		return t.ToString()
	}
	return ""
}

// mostTolerations is how long the annotation with tolerations may be, in bytes. It is parsed for each node.
const mostTolerations = 4 << 10

// tolerations returns the tolerations in a Service's annotation, in YAML or JSON; none if it is too long, has aliases, with
// which a short text stands for a long one, or cannot be parsed.
func tolerations(s *corev1.Service) (out []corev1.Toleration) {
	if text := s.Annotations[k3sTolerations]; text != "" && len(text) <= mostTolerations && !strings.ContainsAny(text, "&*") {
		if yaml.Unmarshal([]byte(text), &out) != nil {
			return nil
		}
	}
	return out
}

// places are the nodes with endpoints of a Service.
type places struct{ ready, terminating map[string]bool }

// at reports whether kube-proxy on a node has an endpoint to send to: a ready one, or one that still serves.
func (p places) at(node string) bool { return p.ready[node] || p.terminating[node] }

// none reports whether no node has an endpoint. Then all nodes can serve, because some users wait for a Service's address
// before they create its pods; kube-proxy refuses connections until then.
func (p places) none() bool { return len(p.ready)+len(p.terminating) == 0 }

// isLocal reports whether a Service's nodes must have endpoints themselves.
func isLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// serves reports whether this package serves a Service.
func serves(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}
