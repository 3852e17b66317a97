// Package nodeaddresses sets external addresses of Nodes, which kubelets cannot know. A kubelet writes all addresses of its Node itself,
// unless it runs with --cloud-provider=external. Then it leaves them to a controller and marks the node as uninitialized. Publisher, on
// the node, writes the desired external addresses into an annotation; Addresses, in the control plane, is the controller. Nodes without
// the annotation, such as those of another cloud's controller, are left alone.
package nodeaddresses

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider/api"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Addresses sets the addresses of all nodes with the annotation.
type Addresses struct {
	// Kubeconfig is allowed to list, watch and patch Nodes and their status.
	Kubeconfig string
	// Reserved are the CIDRs of Services and pods, which cannot contain addresses of nodes.
	Reserved []netip.Prefix
}

// Run works until ctx is done. It is ready at once, because no other part needs external addresses.
func (a Addresses) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, a.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	a.run(kube.WithComponent(ctx, "node-addresses"), client,
		cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()))
	return nil
}

func (a Addresses) run(ctx context.Context, client kubernetes.Interface, nodes cache.ListerWatcher) {
	kube.NodeWork{
		Component: "node-addresses", Nodes: nodes, Trim: trim,
		Items: func(node *corev1.Node) []string {
			if node.Annotations[kube.ExternalIPAnnotation] == "" {
				return nil
			}
			return []string{node.Name}
		},
		Handle: func(ctx context.Context, store cache.Store, name string) error {
			return a.handle(ctx, client, store, name)
		},
	}.Run(ctx)
}

// handle patches one node.
func (a Addresses) handle(ctx context.Context, client kubernetes.Interface, store cache.Store, name string) error {
	obj, exists, err := store.GetByKey(name)
	node, ok := obj.(*corev1.Node)
	if err != nil || !exists || !ok {
		return err
	}
	p, wrong := a.plan(node)
	if wrong != nil {
		logrus.WithField("component", "node-addresses").WithField("node", name).Warnf("ignoring annotation %s: %v", kube.ExternalIPAnnotation, wrong)
	}
	if p.addresses != nil { // the taint is removed at the event of this change
		body := map[string]any{"status": map[string]any{"addresses": p.addresses}}
		if err := patch(ctx, client, name, body, "status"); err != nil {
			return fmt.Errorf("setting the addresses of node %s: %w", name, err)
		}
		return nil
	}
	if !p.untaint {
		return nil
	}
	body := map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, // the list is replaced as a whole
		"spec":     map[string]any{"taints": p.taints},
	}
	if err := patch(ctx, client, name, body); err != nil {
		return fmt.Errorf("removing taint %s of node %s: %w", cloudprovider.TaintExternalCloudProvider, name, err)
	}
	return nil
}

// patch patches a Node. A conflict is not an error, because the change that caused it is handled next.
func patch(ctx context.Context, client kubernetes.Interface, name string, body map[string]any, subresources ...string) error {
	err := kube.PatchNode(ctx, client, name, body, subresources...)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// trim keeps only what plan reads.
func trim(full, small *corev1.Node) {
	if full.Annotations[kube.ExternalIPAnnotation] == "" {
		return
	}
	small.Annotations = map[string]string{kube.ExternalIPAnnotation: full.Annotations[kube.ExternalIPAnnotation]}
	if internal, ok := full.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr]; ok {
		small.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr] = internal
	}
	small.Spec.Taints, small.Status.Addresses = full.Spec.Taints, full.Status.Addresses
}

// most limits the number of external addresses of a node.
const most = 8

// plan lists the changes to a Node.
type plan struct {
	addresses []corev1.NodeAddress // nil: no change
	untaint   bool
	taints    []corev1.Taint // what is left of them
}

// plan compares a Node with its annotation. An invalid annotation is an error and counts as empty, so that the node works
// nevertheless.
func (a Addresses) plan(node *corev1.Node) (p plan, wrong error) {
	p.taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == cloudprovider.TaintExternalCloudProvider
	})
	p.untaint = len(p.taints) < len(node.Spec.Taints)
	provided, external := node.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr]
	if !external {
		return p, nil // this kubelet sets the addresses itself; the taint is of an earlier start
	}
	ips, wrong := a.parse(node.Annotations[kube.ExternalIPAnnotation])
	var want []corev1.NodeAddress
	for text := range strings.SplitSeq(provided, ",") {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return p, fmt.Errorf("%s: %w", cloudprovider.AnnotationAlphaProvidedIPAddr, err)
		}
		want = append(want, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	for _, ip := range ips {
		want = append(want, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip.String()})
	}
	for _, have := range node.Status.Addresses {
		if have.Type != corev1.NodeInternalIP && have.Type != corev1.NodeExternalIP {
			want = append(want, have)
		}
	}
	if !slices.ContainsFunc(want, func(have corev1.NodeAddress) bool { return have.Type == corev1.NodeHostName }) {
		want = append(want, corev1.NodeAddress{Type: corev1.NodeHostName, Address: node.Name})
	}
	if !slices.Equal(want, node.Status.Addresses) {
		p.addresses = want
	}
	return p, wrong
}

// parse parses the annotation strictly: a node writes it, and a compromised node must not gain more by it than a kubelet can do anyway.
func (a Addresses) parse(text string) ([]netip.Addr, error) {
	if text == kube.NoExternalIP {
		return nil, nil
	}
	var ips []netip.Addr
	for one := range strings.SplitSeq(text, ",") {
		ip, err := netip.ParseAddr(one)
		switch {
		case err != nil:
			return nil, err
		case ip.Zone() != "" || ip.String() != one || ip.Is4In6():
			return nil, fmt.Errorf("%q is not the usual spelling of an IP address", one)
		case !ip.IsGlobalUnicast():
			return nil, fmt.Errorf("%s is not an address that a node can be reached at", ip)
		case slices.ContainsFunc(a.Reserved, func(p netip.Prefix) bool { return p.Contains(ip) }):
			return nil, fmt.Errorf("%s belongs to the network of Services or pods", ip)
		case slices.Contains(ips, ip):
			return nil, fmt.Errorf("%s is there twice", ip)
		case len(ips) == most:
			return nil, fmt.Errorf("more than %d addresses", most)
		}
		ips = append(ips, ip)
	}
	return ips, nil
}
