package apiserver

import (
	"cmp"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func TestOwners(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, c := range map[string]struct {
		addresses, cidrs []string
	}{
		"n1": {[]string{"10.0.0.1", "n1"}, []string{"10.42.0.0/24", "fd00:42::/64"}},
		"n2": {[]string{"10.0.0.2", "n2"}, []string{"10.42.1.0/24", "fd00:42:0:1::/64"}},
		// It came last and claims what others have.
		"a-late-one": {[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, []string{"10.42.0.0/23", "fd00:42::/56"}},
		"seen":       {[]string{"10.0.0.3"}, nil}, // where the one before is not
		"outside":    {nil, []string{"198.51.100.0/24"}},
	} {
		made := map[string]int64{"n1": 1, "n2": 2, "seen": 4}[name]
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(cmp.Or(made, 3), 0)}, Spec: corev1.NodeSpec{PodCIDRs: c.cidrs}}
		if name == "seen" {
			node.Annotations = map[string]string{kube.SeenAddresses: "10.0.0.3"}
		}
		for _, a := range c.addresses {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Address: a})
		}
		if err := nodes.Add(node); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string][2]string{"a": {"n1", "10.42.1.9"}, "b": {"n2", "10.42.0.9"}, "c": {"gone", "10.42.0.10"}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: c[0]},
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: c[1]}}}}
		if err := pods.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	cluster := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd00:42::/56")}
	byRange := owners{nodes: corelisters.NewNodeLister(nodes), cluster: cluster}
	byPod := owners{nodes: byRange.nodes, pods: corelisters.NewPodLister(pods)}
	for _, c := range []struct {
		host                  string
		wantRange, wantsByPod string
	}{
		{"10.0.0.1", "n1", "n1"},
		{"n2", "n2", "n2"},
		{"10.0.0.3", "seen", "seen"},
		{"10.42.1.9", "n2", "n1"},
		{"10.42.0.9", "n1", "n2"},
		{"10.42.0.10", "n1", ""},
		{"fd00:42:0:1::9", "n2", ""},
		{"10.43.0.1", "", ""},
		{"198.51.100.7", "", ""},
		{"webhook.example", "", ""},
	} {
		for _, o := range []struct {
			owners
			want string
		}{{byRange, c.wantRange}, {byPod, c.wantsByPod}} {
			got, ok := o.of(c.host)
			if got.Node != o.want || ok != (o.want != "") {
				t.Errorf("%s: %q %v, want %q", c.host, got.Node, ok, o.want)
			}
		}
	}
}
