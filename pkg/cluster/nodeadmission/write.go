package nodeadmission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	leftOut  []string
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
		if w.old != nil && guardedLabel(key) {
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

// labels leaves out the guarded labels that the machine was not configured with when it joined.
func (w *write) labels() {
	for _, key := range slices.Sorted(maps.Keys(w.now.Labels)) {
		joined, ok := w.machine.Labels[key]
		if guardedLabel(key) && (!ok || joined != w.now.Labels[key]) {
			w.leftOut = append(w.leftOut, fmt.Sprintf("label %s of node %s is left out, because the machine did not join with it: set it with kubectl label node %[2]s %[1]s=%s",
				key, w.name, w.now.Labels[key]))
			delete(w.now.Labels, key)
		}
	}
}

// Annotations of flannel by which other nodes reach this one's pods.
const (
	flannel          = "flannel.alpha.coreos.com/"
	publicIPKey      = flannel + "public-ip"
	publicIPv6Key    = flannel + "public-ipv6"
	backendDataKey   = flannel + "backend-data"
	backendV6DataKey = flannel + "backend-v6-data"
)

// checkFlannel refuses an address, a MAC address and a key of the pod network that are not the node's.
func (w *write) checkFlannel() error {
	was, now := w.annotationsBefore(), w.now.Annotations
	for _, key := range []string{publicIPKey, publicIPv6Key} {
		if now[key] == "" || now[key] == was[key] || slices.ContainsFunc(w.now.Status.Addresses, func(a core.NodeAddress) bool { return a.Address == now[key] }) {
			continue
		}
		if reason := w.refuses(now[key], core.NodeInternalIP); reason != "" {
			return fmt.Errorf("the pods of node %s cannot be reached at %s: %s", w.name, now[key], reason)
		}
	}
	for _, key := range []string{backendDataKey, backendV6DataKey} {
		own := tunnelOf(now[key])
		if own == "" || now[key] == was[key] {
			continue
		}
		all, err := w.nodes.List(labels.Everything())
		if err != nil {
			return err
		}
		for _, n := range all {
			if n.Name != w.name && (tunnelOf(n.Annotations[backendDataKey]) == own || tunnelOf(n.Annotations[backendV6DataKey]) == own) {
				return fmt.Errorf("node %s has %s in the pod network", n.Name, own)
			}
		}
	}
	return nil
}

// tunnelOf returns what identifies a node in a backend's data: the MAC address of vxlan, or the public key of WireGuard. It is "" if there
// is none.
func tunnelOf(text string) string {
	var data struct{ VtepMAC, PublicKey string }
	_ = json.Unmarshal([]byte(text), &data) // another backend's data has none
	return strings.ToLower(data.VtepMAC) + data.PublicKey
}

func (w *write) annotationsBefore() map[string]string {
	if w.old == nil {
		return nil
	}
	return w.old.Annotations
}
