package nodeadmission

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	cloudprovider "k8s.io/cloud-provider/api"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// maxAddresses limits the addresses that a node has, and mostAsked those that it asks for.
const (
	maxAddresses = 16
	mostAsked    = 64
)

// addresses leaves out the addresses that the node may not have. Those that a Node has stay, unless another one was seen there and this one never.
func (w *write) addresses() error {
	asked := len(w.now.Status.Addresses)
	for _, key := range []string{cloudprovider.AnnotationAlphaProvidedIPAddr, kube.ExternalIPAnnotation} {
		asked = max(asked, 1+strings.Count(w.now.Annotations[key], ","))
	}
	if asked > mostAsked {
		return fmt.Errorf("node %s asks for %d addresses, and at most %d are possible", w.name, asked, mostAsked)
	}
	var before []core.NodeAddress
	if w.old != nil {
		before = w.old.Status.Addresses
	}
	var kept []core.NodeAddress
	for _, a := range w.now.Status.Addresses {
		if slices.Contains(before, a) && !w.lost(a) || w.isName(a) {
			kept = append(kept, a)
			continue
		}
		if w.allows(a.Address, a.Type, len(kept)) {
			kept = append(kept, a)
			continue
		}
		for _, b := range before { // what it would replace
			if b.Type == a.Type && strings.Contains(b.Address, ":") == strings.Contains(a.Address, ":") && !slices.Contains(kept, b) && !w.lost(b) {
				kept = append(kept, b)
			}
		}
	}
	if w.leftOut > 0 {
		w.now.Status.Addresses = slices.CompactFunc(kept, func(a, b core.NodeAddress) bool { return a == b })
	}
	w.mark()
	w.annotation(cloudprovider.AnnotationAlphaProvidedIPAddr, core.NodeInternalIP, "")
	w.annotation(kube.ExternalIPAnnotation, core.NodeExternalIP, kube.NoExternalIP)
	return w.checkFlannel()
}

// annotation leaves addresses out of an annotation from which the control plane makes addresses of the Node. none is its value without
// any; "" keeps what it was.
func (w *write) annotation(key string, kind core.NodeAddressType, none string) {
	before, value := w.annotationsBefore()[key], w.now.Annotations[key]
	if value == "" || value == none {
		return
	}
	held := strings.Split(before, ",")
	held = slices.DeleteFunc(held, func(one string) bool { return one == "" || w.lost(core.NodeAddress{Type: kind, Address: one}) })
	var kept []string
	for one := range strings.SplitSeq(value, ",") {
		if slices.Contains(held, one) || w.allows(one, kind, len(kept)) {
			kept = append(kept, one)
		}
	}
	if len(kept) == 0 {
		kept = held
	}
	if w.now.Annotations[key] = cmp.Or(strings.Join(kept, ","), none); w.now.Annotations[key] == "" {
		delete(w.now.Annotations, key)
	}
}

// isName reports whether an entry is the node's name. A name that looks like an address would be taken for one.
func (w *write) isName(a core.NodeAddress) bool {
	_, err := netip.ParseAddr(a.Address)
	return err != nil && a.Type == core.NodeHostName && strings.EqualFold(a.Address, w.name)
}

// mark records at which of its addresses the node was seen.
func (w *write) mark() {
	var seen []string
	for _, a := range w.now.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err == nil && !slices.Contains(seen, a.Address) && (ip == w.source || w.listed(kube.SeenAddresses, ip)) {
			seen = append(seen, a.Address)
		}
	}
	metav1.SetMetaDataAnnotation(&w.now.ObjectMeta, kube.SeenAddresses, strings.Join(seen, ","))
}

// lost reports whether an internal address that the node only claims is that of a live node which was seen there.
func (w *write) lost(a core.NodeAddress) bool {
	ip, err := netip.ParseAddr(a.Address)
	if err != nil || a.Type != core.NodeInternalIP || ip == w.source || w.listed(kube.SeenAddresses, ip) || w.listed(kube.AllowedAddresses, ip) {
		return false
	}
	all, err := w.nodes.List(labels.Everything())
	return err == nil && slices.ContainsFunc(all, func(n *corev1.Node) bool { return n.Name != w.name && live(n) && kube.HasForSure(n, ip.Unmap()) })
}

// listed reports whether an annotation of the Node listed an address before.
func (w *write) listed(annotation string, ip netip.Addr) bool {
	return kube.Lists(w.annotationsBefore()[annotation], ip)
}

// allows reports whether the node may have an address, and notes if not. have is how many it has.
func (w *write) allows(address string, kind core.NodeAddressType, have int) bool {
	w.compared = true
	reason := w.refuses(address, kind)
	if have >= maxAddresses {
		reason = fmt.Sprintf("it has %d addresses already", have)
	}
	if reason != "" {
		w.leaveOut("%.20s %.60s of node %s is left out: %s", kind, address, w.name, reason)
	}
	return reason == ""
}

// refuses returns why the node may not have an address, "" if it may: the API sees it as the source of the node's connection, or an
// administrator permits it, or it is one of those with which the machine joined; and nobody else has it. An external address that is seen may
// only change: if any node has one, load balancers leave out the nodes without.
func (w *write) refuses(address string, kind core.NodeAddressType) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.String() != address || ip.Zone() != "" || ip.Is4In6() || !ip.IsGlobalUnicast() || kind != core.NodeInternalIP && kind != core.NodeExternalIP {
		return "it is not an address at which a node can be reached"
	}
	if !w.WaitForReady() {
		return "the server is starting"
	}
	permitted := w.listed(kube.AllowedAddresses, ip)
	if !permitted && slices.ContainsFunc(w.networks, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return "it belongs to the network of Services or pods"
	}
	seen := ip == w.source && (kind != core.NodeExternalIP || w.hasExternal())
	if other := w.holder(ip, kind, seen, permitted); other != "" {
		return "it is that of " + other
	}
	if seen || permitted {
		return ""
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
		w.source, w.name, kube.AllowedAddresses, address)
}

// hasExternal reports whether the node has an external address, or joined with one.
func (w *write) hasExternal() bool {
	if w.old != nil && slices.ContainsFunc(w.old.Status.Addresses, func(a core.NodeAddress) bool { return a.Type == core.NodeExternalIP }) {
		return true
	}
	return w.readClaim() == nil && (w.machine.Server || len(w.machine.External) > 0)
}
