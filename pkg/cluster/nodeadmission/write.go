package nodeadmission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// write is what a node writes into its Node.
type write struct {
	*Plugin
	ctx      context.Context
	name     string
	old, now *core.Node // old is nil when it registers
	source   netip.Addr // of its connection

	machine  *endpoint.Machine // read when it is needed
	compared bool              // there were addresses to check
	leftOut  int
	told     []string // the first of what is left out
}

// stored returns the metadata of the Node as it was.
func (w *write) stored() *corev1.Node {
	if w.old == nil {
		return nil
	}
	return &corev1.Node{ObjectMeta: w.old.ObjectMeta}
}

// readClaim reads what the machine said when it joined. It is an error if no machine has joined as this node.
func (w *write) readClaim() error {
	if w.machine != nil {
		return nil
	}
	claim, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(w.ctx, endpoint.ClaimPrefix+w.name, metav1.GetOptions{})
	if err != nil || claim.Spec.HolderIdentity == nil || *claim.Spec.HolderIdentity == "" {
		return errors.Join(fmt.Errorf("no machine has joined as node %s, or it was removed: join again with a token", w.name), err)
	}
	m, _ := endpoint.MachineOf(claim)
	w.machine = &m
	return nil
}

func (w *write) checkSpec() error {
	if !equality.Semantic.DeepEqual(w.old.Spec, w.now.Spec) {
		return errors.New("a node cannot change its own spec, such as podCIDR, taints and unschedulable: an administrator can, with kubectl")
	}
	return nil
}

// guardedDomain reports whether only the control plane and administrators set labels and annotations of a domain, because others act on
// them: which nodes serve load balancers, which names are the API's.
func guardedDomain(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "svccontroller.k3s.cattle.io" || domain == "coracle.io"
}

func guardedLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return guardedDomain(key) || domain == "node.coracle.io" || key == corev1.LabelNodeExcludeBalancers
}

// checkMeta refuses metadata that a node must not set on itself. What its kubelet registers with was filtered before.
func (w *write) checkMeta() error {
	var was metav1.ObjectMeta
	if w.old != nil {
		was = w.old.ObjectMeta
	}
	if !equality.Semantic.DeepEqual(was.Finalizers, w.now.Finalizers) {
		return fmt.Errorf("a node cannot set finalizers on itself: nobody could remove node %s", w.name)
	}
	for _, key := range changed(was.Annotations, w.now.Annotations) {
		if guardedDomain(key) && key != kube.SeenAddresses { // which Admit sets
			return fmt.Errorf("annotation %s of a node is the control plane's and administrators' to set", key)
		}
	}
	for _, key := range changed(was.Labels, w.now.Labels) {
		if w.old != nil && (guardedLabel(key) || key == corev1.LabelHostname && w.now.Labels[key] != w.name) {
			return fmt.Errorf("a node that is registered cannot change its label %s: an administrator can, with kubectl label node", key)
		}
	}
	return nil
}

func changed(was, now map[string]string) (keys []string) {
	all := maps.Clone(was)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, now)
	for key := range all {
		before, had := was[key]
		after, has := now[key]
		if had != has || before != after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// labels leaves out the guarded labels that the machine was not configured with when it joined, and another node's name: pods and volumes are
// bound to nodes by it.
func (w *write) labels() {
	if host, ok := w.now.Labels[corev1.LabelHostname]; ok && host != w.name {
		w.leaveOut("label %s=%.100s of node %s is left out: it can only be the node's name", corev1.LabelHostname, host, w.name)
		delete(w.now.Labels, corev1.LabelHostname)
	}
	for _, key := range slices.Sorted(maps.Keys(w.now.Labels)) {
		joined, ok := w.machine.Labels[key]
		if guardedLabel(key) && (!ok || joined != w.now.Labels[key]) {
			w.leaveOut("label %.100s of node %s is left out, because the machine did not join with it: set it with kubectl label node %[2]s %.100[1]s=%.63[3]s",
				key, w.name, w.now.Labels[key])
			delete(w.now.Labels, key)
		}
	}
}

func (w *write) annotationsBefore() map[string]string {
	if w.old == nil {
		return nil
	}
	return w.old.Annotations
}
