package nodeadmission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// staticLabels is the annotation of a namespace by which an administrator lets static pods of agents have labels there.
const staticLabels = "coracle.io/allow-static-pod-labels"

// podOf returns the pod that a node writes, and the node's name; ok is false for other requests.
func podOf(a admission.Attributes) (node string, is, was *core.Pod, ok bool) {
	node = nodeOf(a.GetUserInfo().GetName())
	if node == "" || a.GetResource().GroupResource() != core.Resource("pods") {
		return "", nil, nil, false
	}
	is, ok = a.GetObject().(*core.Pod) // not of an eviction
	was, _ = a.GetOldObject().(*core.Pod)
	return node, is, was, ok
}

// admitPod leaves out of a pod what would make the node a part of others' applications. Services and network policies choose pods by labels,
// which the API's mirror of a static pod has as its machine says, and send to the addresses in the status.
func (p *Plugin) admitPod(ctx context.Context, a admission.Attributes, node string, is, was *core.Pod) error {
	foreign := func(ip core.PodIP) bool { return was != nil && !slices.Contains(was.Status.PodIPs, ip) }
	if was == nil && len(is.Labels) == 0 || was != nil && !slices.ContainsFunc(is.Status.PodIPs, foreign) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("the server is starting"))
	}
	w := write{Plugin: p, ctx: ctx, name: node, compared: true}
	n, all, err := w.nodeAndOthers()
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if was == nil {
		if ns, err := p.namespaces.Get(a.GetNamespace()); (err != nil || ns.Annotations[staticLabels] != "true") && !w.isServer(n) {
			is.Labels = nil
			w.leaveOut("the labels of static pods in namespace %s are left out on agents: to permit them: kubectl annotate namespace %[1]s %s=true",
				a.GetNamespace(), staticLabels)
		}
	} else if p.podNetworks != nil && !w.isServer(n) {
		is.Status.PodIPs = slices.DeleteFunc(slices.Clone(is.Status.PodIPs), func(ip core.PodIP) bool {
			left := foreign(ip) && !has(n, kube.SubnetsOf(n, all, p.podNetworks), ip.IP)
			if left {
				w.leaveOut("address %.60s of pod %s/%s is left out: it is neither in a pod subnet nor an address of node %s", ip.IP, is.Namespace, is.Name, node)
			}
			return left
		})
		if is.Status.PodIP = ""; len(is.Status.PodIPs) > 0 {
			is.Status.PodIP = is.Status.PodIPs[0].IP
		}
	}
	p.tell(ctx, node+"/pods", w)
	return nil
}

// nodeAndOthers returns the Node of the write, an empty one if there is none, and all Nodes.
func (w *write) nodeAndOthers() (*corev1.Node, []*corev1.Node, error) {
	all, err := w.nodes.List(labels.Everything())
	for _, n := range all {
		if n.Name == w.name {
			return n, all, err
		}
	}
	return &corev1.Node{}, all, err
}

// isServer reports whether the node is a server, which has all keys anyway. One that has just joined may not be labelled as one yet.
func (w *write) isServer(n *corev1.Node) bool {
	return kube.IsServer(n) || w.isOwn(w.ctx, w.name) || w.readClaim() == nil && w.machine.Server
}

// has reports whether an address is in one of a node's subnets or one of its own.
func has(n *corev1.Node, subnets []netip.Prefix, address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && (slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(ip) }) ||
		slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == address }))
}

// checkPod refuses finalizers, because a pod that is kept keeps its token valid, and names that the kubelet gives no static pod
// (k8s.io/kubernetes/pkg/kubelet/config, generatePodName), because another pod may be about to get them, as a StatefulSet's.
func checkPod(node string, is, was *core.Pod) error {
	var before []string
	if was != nil {
		before = was.Finalizers
	} else if suffix := "-" + strings.ToLower(node); !strings.HasSuffix(is.Name, suffix) {
		return fmt.Errorf("the name of a static pod of node %s ends with %s", node, suffix)
	}
	if !slices.Equal(before, is.Finalizers) {
		return errors.New("a node cannot set or remove finalizers of a pod")
	}
	return nil
}

// networksOf returns the ranges of pods if coracle gives pods their addresses; another CNI plugin may use any.
func networksOf(cfg config.Config) []netip.Prefix {
	if cfg.Network.Backend == config.BackendNone {
		return nil
	}
	return cfg.Network.ClusterCIDRs
}
