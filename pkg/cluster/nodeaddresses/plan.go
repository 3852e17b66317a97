package nodeaddresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider/api"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

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
