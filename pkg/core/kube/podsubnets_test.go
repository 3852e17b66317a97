package kube

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSubnetsOf: others rely on subnets that are parts of the cluster's, and that no older Node has.
func TestSubnetsOf(t *testing.T) {
	made := time.Now()
	node := func(name string, age time.Duration, cidrs ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made.Add(-age))}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
	}
	cluster := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/56")}
	nodes := map[*corev1.Node]bool{
		node("a", time.Hour, "10.42.0.0/24", "fd42::/64"): true, node("b", time.Hour, "10.42.1.0/24"): true, node("none", time.Hour): false,
		node("larger", 3*time.Hour, "10.42.0.0/15"): false, node("all", time.Minute, "0.0.0.0/0"): false, node("elsewhere", time.Hour, "10.43.0.0/24"): false,
		node("swapped", time.Minute, "fd42:0:0:9::/64", "10.42.9.0/24"): false, node("half", time.Minute, "10.42.8.0/24", "fd43::/64"): false,
		node("no-cidr", time.Minute, "10.42.7.0/24", "x"): false, node("younger", time.Minute, "10.42.0.128/25"): false,
		node("c", time.Hour, "10.42.1.0/24"):             false, // of the same second as b
		node("outside-first", 2*time.Hour, "10.0.0.0/8"): false, // it takes nothing from the others
	}
	var all []*corev1.Node
	for n := range nodes {
		all = append(all, n)
	}
	for n, ok := range nodes {
		var want []netip.Prefix
		if ok {
			want = PodCIDRs(n)
		}
		if got := SubnetsOf(n, all, cluster); !slices.Equal(got, want) {
			t.Errorf("%s with %q: %v", n.Name, n.Spec.PodCIDRs, got)
		}
	}
}
