package nodeadmission

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	cloudprovider "k8s.io/cloud-provider/api"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// AllowedAnnotation of a Node lists addresses that an administrator permits the node to have, separated by commas.
const AllowedAnnotation = "coracle.io/allowed-addresses"

// addresses leaves out the addresses that the node may not have. Those that a Node has stay.
func (w *write) addresses() error {
	var before []core.NodeAddress
	if w.old != nil {
		before = w.old.Status.Addresses
	}
	var kept []core.NodeAddress
	for _, a := range w.now.Status.Addresses {
		if slices.Contains(before, a) || a.Type == core.NodeHostName && strings.EqualFold(a.Address, w.name) {
			kept = append(kept, a)
			continue
		}
		if w.allows(a.Address, a.Type) {
			kept = append(kept, a)
			continue
		}
		for _, b := range before { // what it would replace
			if b.Type == a.Type && strings.Contains(b.Address, ":") == strings.Contains(a.Address, ":") && !slices.Contains(kept, b) {
				kept = append(kept, b)
			}
		}
	}
	if len(w.leftOut) > 0 {
		w.now.Status.Addresses = slices.CompactFunc(kept, func(a, b core.NodeAddress) bool { return a == b })
	}
	w.annotation(cloudprovider.AnnotationAlphaProvidedIPAddr, core.NodeInternalIP, "")
	w.annotation(kube.ExternalIPAnnotation, core.NodeExternalIP, kube.NoExternalIP)
	return w.checkFlannel()
}

// annotation leaves addresses out of an annotation from which the control plane makes addresses of the Node. none is its value without
// any; "" keeps what it was.
func (w *write) annotation(key string, kind core.NodeAddressType, none string) {
	before, value := w.annotationsBefore()[key], w.now.Annotations[key]
	if value == "" || value == before || value == none {
		return
	}
	var kept []string
	for one := range strings.SplitSeq(value, ",") {
		if slices.Contains(strings.Split(before, ","), one) || w.allows(one, kind) {
			kept = append(kept, one)
		}
	}
	switch {
	case len(kept) > 0:
		w.now.Annotations[key] = strings.Join(kept, ",")
	case none != "" || before != "":
		w.now.Annotations[key] = cmp.Or(before, none)
	default:
		delete(w.now.Annotations, key)
	}
}

// allows reports whether the node may have an address, and notes if not.
func (w *write) allows(address string, kind core.NodeAddressType) bool {
	w.compared = true
	reason := w.refuses(address, kind)
	if reason != "" {
		w.leftOut = append(w.leftOut, fmt.Sprintf("%s %s of node %s is left out: %s", kind, address, w.name, reason))
	}
	return reason == ""
}

// refuses returns why the node may not have an address, "" if it may: the API sees it as the source of the node's connection, or an
// administrator permits it, or it is one of those with which the machine joined; and nobody else has it.
func (w *write) refuses(address string, kind core.NodeAddressType) string {
	ip, err := netip.ParseAddr(address)
	ip = ip.Unmap()
	if err != nil || !ip.IsGlobalUnicast() || kind != core.NodeInternalIP && kind != core.NodeExternalIP {
		return "it is not an address at which a node can be reached"
	}
	if !w.WaitForReady() {
		return "the server is starting"
	}
	seen := ip == w.source
	if other := w.holder(ip, kind, seen); other != "" {
		return "it is that of " + other
	}
	if seen || slices.Contains(strings.Split(w.annotationsBefore()[AllowedAnnotation], ","), address) {
		return ""
	}
	if slices.ContainsFunc(w.networks, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return "it belongs to the network of Services or pods"
	}
	if err := w.readClaim(); err != nil {
		return err.Error()
	}
	inFamily := func(a netip.Addr) bool { return a.Is4() == ip.Is4() }
	switch {
	case w.machine.Server || slices.Contains(w.machine.External, ip):
		return ""
	case kind == core.NodeInternalIP && slices.Contains(w.machine.Addresses, ip):
		return ""
	case kind == core.NodeInternalIP && w.old == nil && !slices.ContainsFunc(w.machine.Addresses, inFamily):
		return "" // it joined before this was recorded, or before it knew the cluster's address families
	}
	return fmt.Sprintf("the server sees the node's connections come from %s; to permit it: kubectl annotate node %s %s=%s",
		w.source, w.name, AllowedAnnotation, address)
}

// holder returns who else has an address, "" if nobody has. The address of a node that is not Ready can be taken by the one that is seen at it.
// Nodes behind one NAT share their external address.
func (w *write) holder(ip netip.Addr, kind core.NodeAddressType, seen bool) string {
	if slices.Contains(w.reserved, ip) {
		return "server " + w.own
	}
	all, err := w.nodes.List(labels.Everything())
	if err != nil {
		return err.Error()
	}
	for _, n := range all {
		if n.Name == w.name {
			continue
		}
		server := kube.IsServer(n)
		if server && slices.Contains(strings.Split(n.Annotations[kube.APINamesAnnotation], ","), ip.String()) {
			return "server " + n.Name
		}
		for _, a := range n.Status.Addresses {
			shared := kind == core.NodeExternalIP && a.Type == corev1.NodeExternalIP
			if other, err := netip.ParseAddr(a.Address); err == nil && other.Unmap() == ip && (server || !seen || live(n) && !shared) {
				return "node " + n.Name
			}
		}
	}
	if seen {
		return ""
	}
	services, err := w.services.List(labels.Everything())
	if err != nil {
		return err.Error()
	}
	for _, s := range services {
		if slices.Contains(s.Spec.ExternalIPs, ip.String()) {
			return "Service " + s.Namespace + "/" + s.Name
		}
	}
	return ""
}

func live(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
