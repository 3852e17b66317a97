package kube

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of a Node with addresses, separated by commas. Only administrators and the API server's admission set them.
const (
	AllowedAddresses = "coracle.io/allowed-addresses" // an administrator permits the node to have them
	SeenAddresses    = "coracle.io/seen-addresses"    // a server saw the node's connections come from them
)

// HasForSure reports whether a Node has an address that it does not only claim: it is a server, or it was seen there, or an administrator permits it.
func HasForSure(node *corev1.Node, ip netip.Addr) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		own, err := netip.ParseAddr(a.Address)
		return err == nil && own.Unmap() == ip
	}) && (IsServer(node) || Lists(node.Annotations[SeenAddresses], ip) || Lists(node.Annotations[AllowedAddresses], ip))
}

// OnlyClaims reports whether nothing but what a Node says tells that it has an address. In a release before nothing was recorded, so it is false then.
func OnlyClaims(node *corev1.Node, ip netip.Addr) bool {
	_, recorded := node.Annotations[SeenAddresses]
	return recorded && !HasForSure(node, ip)
}

// Lists reports whether an annotation lists an address.
func Lists(annotation string, ip netip.Addr) bool {
	return slices.Contains(strings.Split(annotation, ","), ip.String())
}
