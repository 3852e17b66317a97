package servicelb

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// Labels by which people choose nodes, k3s's and ours, and an annotation of k3s's.
const (
	k3sEnable      = "svccontroller.k3s.cattle.io/enablelb"
	k3sPool        = "svccontroller.k3s.cattle.io/lbpool"
	k3sTolerations = "svccontroller.k3s.cattle.io/tolerations"

	ownEnable = "node.coracle.io/load-balancer"
	ownPool   = "node.coracle.io/load-balancer-pool"
)

// controlPlane is the label of a server's node.
const controlPlane = "node-role.kubernetes.io/control-plane"

// toBeDeleted is the taint of the cluster autoscaler on a node that is about to go.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// chosen reports whether people have chosen which nodes serve: then the others do not.
func chosen(nodes []*corev1.Node) bool {
	for _, n := range nodes {
		_, theirs := n.Labels[k3sEnable]
		_, own := n.Labels[ownEnable]
		if theirs || own {
			return true
		}
	}
	return false
}

// unfit says in words why a node does not serve a Service, "" if it may. Whether it is alive is another question.
func unfit(n *corev1.Node, s *corev1.Service, some bool) string {
	exclude, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	if on, err := strconv.ParseBool(exclude); err == nil && !on {
		excluded = false
	}
	switch {
	case n.DeletionTimestamp != nil:
		return "it is being removed"
	case excluded:
		return "it has the label " + corev1.LabelNodeExcludeBalancers
	case some && n.Labels[k3sEnable] != "true" && n.Labels[ownEnable] != "true":
		return fmt.Sprintf("other nodes have the label %s or %s, and it has not", ownEnable, k3sEnable)
	case some && s.Labels[k3sPool] != "" && n.Labels[k3sPool] != s.Labels[k3sPool]:
		return fmt.Sprintf("it is not in the pool %s=%s", k3sPool, s.Labels[k3sPool])
	case s.Labels[ownPool] != "" && n.Labels[ownPool] != s.Labels[ownPool]:
		return fmt.Sprintf("it is not in the pool %s=%s", ownPool, s.Labels[ownPool])
	}
	if taint := repelled(n, s); taint != "" {
		return "it has the taint " + taint
	}
	return ""
}

// isReady is what the node's kubelet says, or the control plane about a node that says nothing.
func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// repelled returns a taint that keeps a Service away, as it would keep away the pod by which k3s does the same.
func repelled(n *corev1.Node, s *corev1.Service) string {
	extra := tolerations(s)
	for _, t := range n.Spec.Taints {
		switch {
		case t.Key == toBeDeleted:
			return t.ToString()
		case t.Effect == corev1.TaintEffectPreferNoSchedule,
			strings.HasPrefix(t.Key, "node.kubernetes.io/"), // the state of the node, which is looked at itself
			t.Key == controlPlane, t.Key == "node-role.kubernetes.io/master", t.Key == "CriticalAddonsOnly":
			continue
		}
		tolerated := false
		for _, e := range extra {
			tolerated = tolerated || e.ToleratesTaint(klog.Background(), &t, true)
		}
		if !tolerated {
			return t.ToString()
		}
	}
	return ""
}

// tolerations are what a Service tolerates beyond that, in YAML or JSON. Nonsense is nothing.
func tolerations(s *corev1.Service) (out []corev1.Toleration) {
	if text := s.Annotations[k3sTolerations]; text != "" {
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

// none reports that there is no such node. Then there is nothing to choose by, and all nodes may serve: some wait for a
// Service's address before they make its pods, and kube-proxy refuses connections until then.
func (p places) none() bool { return len(p.ready)+len(p.terminating) == 0 }

// isLocal reports whether a Service's nodes must have endpoints themselves.
func isLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// ours reports whether a Service is this balancer's.
func ours(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}
