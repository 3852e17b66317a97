package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// SubnetsOf returns the pod subnets of a Node that others may rely on: none unless all are parts of the cluster's and overlap no older
// Node's. The control plane assigns such subnets only, but an administrator, or a node of a cluster that did not refuse it yet, can have
// set others. all are the cluster's Nodes.
func SubnetsOf(node *corev1.Node, all []*corev1.Node, cluster []netip.Prefix) []netip.Prefix {
	if !InCluster(node, cluster) || slices.ContainsFunc(all, func(n *corev1.Node) bool {
		return Older(n, node) && Overlap(n, node) && InCluster(n, cluster)
	}) {
		return nil
	}
	return PodCIDRs(node)
}

// InCluster reports whether a Node has pod subnets and each is a part of the cluster's CIDR at the same place of the list.
func InCluster(node *corev1.Node, cluster []netip.Prefix) bool {
	own := PodCIDRs(node)
	if len(own) == 0 || len(own) != len(node.Spec.PodCIDRs) || len(own) > len(cluster) {
		return false
	}
	for i, cidr := range own {
		if !cluster[i].Contains(cidr.Addr()) || cidr.Bits() < cluster[i].Bits() {
			return false
		}
	}
	return true
}

// Older reports whether a Node was made before another one. Names decide between Nodes of the same second.
func Older(a, b *corev1.Node) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// Overlap reports whether a pod subnet of a Node overlaps one of another.
func Overlap(a, b *corev1.Node) bool {
	others := PodCIDRs(b)
	return slices.ContainsFunc(PodCIDRs(a), func(own netip.Prefix) bool { return slices.ContainsFunc(others, own.Overlaps) })
}
