package kube

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider/api"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// ExternalIPAnnotation holds the external addresses that a node requests, separated by commas.
const ExternalIPAnnotation = "node.coracle.io/external-ip"

// NoExternalIP is the annotation's value if the node may have none of the addresses that it requested.
const NoExternalIP = "none"

// APINamesAnnotation holds further names and addresses of a server's API, on the server's Node.
const APINamesAnnotation = "coracle.io/api-names"

// AnnouncesAnnotation is on the Nodes that may announce addresses of load balancers' pools, while there are such addresses.
const AnnouncesAnnotation = "node.coracle.io/lb-announces"

// ControlPlaneLabel is the label of servers' Nodes, which no kubelet can set. kubectl shows it in the column ROLES.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// GatewayLabel is the label by which an administrator makes an agent a gateway. No kubelet can set it (NodeRestriction).
const GatewayLabel = "coracle.node-restriction.kubernetes.io/gateway"

// IsGatewayAgent reports whether a node is an agent that is a gateway.
func IsGatewayAgent(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp == nil && node.Labels[GatewayLabel] == "true" && !IsServer(node)
}

// IsServer reports whether a Node is that of a server. A nil Node is not.
func IsServer(node *corev1.Node) bool { return node != nil && node.Labels[ControlPlaneLabel] == "true" }

// LoadBalancerCondition is the condition of Services whose addresses are those of nodes.
const LoadBalancerCondition = "coracle.io/LoadBalancerReady"

// PodCIDRs returns the subnets of a Node's pods. A nil Node has none.
func PodCIDRs(node *corev1.Node) (cidrs []netip.Prefix) {
	if node == nil {
		return nil
	}
	for _, text := range node.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, cidr)
		}
	}
	return cidrs
}

// PatchNode merges a body into a Node, or into a subresource of it, within ten seconds.
func PatchNode(ctx context.Context, client kubernetes.Interface, name string, body any, subresources ...string) error {
	return MergePatch(ctx, client.CoreV1().Nodes(), name, body, subresources...)
}

// AnnotateNode sets annotations of a Node through its subresource status, which a kubelet may patch. A nil value removes one.
func AnnotateNode(ctx context.Context, client kubernetes.Interface, name string, annotations map[string]*string) error {
	return PatchNode(ctx, client, name, map[string]any{"metadata": map[string]any{"annotations": annotations}}, "status")
}

// OwnNode watches the Node object of this machine for all components that need it.
type OwnNode struct {
	// Kubeconfig identifies the node. Name is the object's.
	Kubeconfig, Name string

	mu      sync.Mutex
	node    *corev1.Node
	changed chan struct{} // closed at the next change
}

// NewOwnNode returns the follower of the named node. Until Run works, Await waits.
func NewOwnNode(kubeconfig, name string) *OwnNode {
	return &OwnNode{Kubeconfig: kubeconfig, Name: name, changed: make(chan struct{})}
}

// Run follows the object until ctx is done. It is ready when the object exists.
func (o *OwnNode) Run(ctx context.Context, ready func()) error {
	client, err := Client(o.Kubeconfig)
	if err != nil {
		return err
	}
	go func() {
		if _, err := o.Await(ctx, "the kubelet to register the node", func(*corev1.Node) bool { return true }); err == nil {
			ready()
		}
	}()
	store := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok {
			o.Set(node)
		}
	}
	selector := fields.OneTermEqualSelector("metadata.name", o.Name)
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", selector),
		ObjectType:    &corev1.Node{},
		Transform:     trimNode,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    store,
			UpdateFunc: func(_, obj any) { store(obj) },
			DeleteFunc: func(any) { o.Set(nil) },
		},
	})
	controller.RunWithContext(WithComponent(ctx, "node"))
	return nil
}

// Await returns the node as soon as ok returns true. what is the reason of the wait in the group's reports. The object is
// shared and must not be changed.
func (o *OwnNode) Await(ctx context.Context, what string, ok func(*corev1.Node) bool) (*corev1.Node, error) {
	defer lifecycle.WaitingFor(ctx, "")
	for told := false; ; told = true {
		node, changed := o.Get()
		if node != nil && ok(node) {
			return node, nil
		}
		if !told {
			lifecycle.WaitingFor(ctx, what)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// Get returns the node as last seen, nil if it does not exist, and a channel that is closed at the next change.
func (o *OwnNode) Get() (*corev1.Node, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node, o.changed
}

// Set replaces the node as last seen; nil is a node that does not exist. Run calls it, and tests do.
func (o *OwnNode) Set(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.node = node
	close(o.changed)
	o.changed = make(chan struct{})
}

// HeardOf reports whether the kubelet has updated the node's status since a time. Before that the status is of an earlier
// kubelet, which may have had another address.
func HeardOf(node *corev1.Node, since time.Time) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) // the API knows seconds only
		}
	}
	return false
}

// AddressesSettled reports whether a Node lists the addresses of its kubelet. For nodes with external addresses the control
// plane sets them, shortly after the kubelet has reported a new one.
func AddressesSettled(node *corev1.Node) bool {
	if node.Annotations[ExternalIPAnnotation] == "" {
		return len(node.Status.Addresses) > 0 // the kubelet has set them itself
	}
	for ip := range strings.SplitSeq(node.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr], ",") {
		if ip != "" && !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == ip }) {
			return false
		}
	}
	return len(node.Status.Addresses) > 0
}

// trimNode drops large parts of a Node that coracle does not read.
func trimNode(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
	}
	return obj, nil
}

// VolumePath is the directory of a volume that is one on a node, "" if it is none.
func VolumePath(pv *corev1.PersistentVolume) string {
	switch {
	case pv.Spec.Local != nil:
		return pv.Spec.Local.Path
	case pv.Spec.HostPath != nil:
		return pv.Spec.HostPath.Path
	}
	return ""
}

// OnlyNode is the hostname label of the one node that a StorageClass allows volumes on, if it makes them at once instead
// of waiting for the scheduler; else "".
func OnlyNode(class *storagev1.StorageClass) string {
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode != storagev1.VolumeBindingImmediate || len(class.AllowedTopologies) != 1 {
		return ""
	}
	for _, e := range class.AllowedTopologies[0].MatchLabelExpressions {
		if e.Key == corev1.LabelHostname && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}
