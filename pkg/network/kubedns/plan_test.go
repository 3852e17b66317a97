package kubedns

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func dualNodes(n int) []node {
	var out []node
	for i := range n {
		out = append(out, node{name: fmt.Sprintf("n%04d", i), addrs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 42, byte(i), 1}),
			netip.MustParseAddr(fmt.Sprintf("fd42:0:0:%x::1", i)),
		}})
	}
	return out
}

// apply does to the slices what a plan says.
func (p plan) apply(live []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range live {
		byName[s.Name] = s
	}
	for _, s := range append(p.create, p.update...) {
		byName[s.Name] = s
	}
	for _, s := range p.remove {
		delete(byName, s.Name)
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range byName {
		out = append(out, s)
	}
	return out
}

func counts(p plan) string {
	return fmt.Sprintf("%d/%d/%d", len(p.create), len(p.update), len(p.remove))
}

func TestPlanFollowsNodes(t *testing.T) {
	k := KubeDNS{Network: config.Network{Backend: config.VXLAN}}
	var live []*discoveryv1.EndpointSlice
	nodes := dualNodes(1000)
	for _, tt := range []struct {
		name  string
		nodes []node
		want  string // slices created, updated, removed
	}{
		{"no node", nil, "0/0/0"},
		{"one", nodes[:1], "2/0/0"},
		{"the same", nodes[:1], "0/0/0"},
		{"a second", nodes[:2], "0/2/0"},
		{"a thousand", nodes, "18/2/0"},
		{"one less", append(append([]node{}, nodes[:450]...), nodes[451:]...), "0/2/0"},
		{"back again", nodes, "0/2/0"},
		{"without a pod network yet", append(dualNodes(1000), node{name: "new"}), "0/0/0"},
		{"none", nil, "0/0/20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := k.plan(append([]node{}, tt.nodes...), live)
			if got := counts(p); got != tt.want {
				t.Errorf("plan is %s, want %s", got, tt.want)
			}
			live = p.apply(live)
			seen := 0
			for _, s := range live {
				seen += len(s.Endpoints)
				if len(s.Endpoints) > sliceSize {
					t.Errorf("slice %s has %d endpoints", s.Name, len(s.Endpoints))
				}
			}
			want := 0
			for _, n := range tt.nodes {
				want += len(n.addrs)
			}
			if seen != want {
				t.Errorf("%d endpoints, want %d", seen, want)
			}
		})
	}
}

func TestPlanRepairs(t *testing.T) {
	k := KubeDNS{Network: config.Network{Backend: config.VXLAN}}
	nodes := dualNodes(1)
	for _, tt := range []struct {
		name  string
		spoil func(*discoveryv1.EndpointSlice)
		want  string
	}{
		{"nothing", func(*discoveryv1.EndpointSlice) {}, "0/0/0"},
		{"another address", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.42.9.1"} }, "0/1/0"},
		{"not ready", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }, "0/1/0"},
		{"no node name", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = nil }, "0/1/0"},
		{"another port", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(53)) }, "0/1/0"},
		{"twice the node", func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, s.Endpoints[0]) }, "0/1/0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live := k.plan(nodes, nil).apply(nil)
			for _, s := range live {
				if s.AddressType == discoveryv1.AddressTypeIPv4 {
					tt.spoil(s)
				}
			}
			if got := counts(k.plan(nodes, live)); got != tt.want {
				t.Errorf("plan is %s, want %s", got, tt.want)
			}
		})
	}
}

func TestListen(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.42.3.0/24", "fd42:0:0:3::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "a"},
			{Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
			{Type: corev1.NodeExternalIP, Address: "198.51.100.7"},
		}},
	}
	for backend, want := range map[config.Backend]string{
		config.VXLAN:       "[10.42.3.1 fd42:0:0:3::1]",
		config.HostGW:      "[10.42.3.1 fd42:0:0:3::1]",
		config.BackendNone: "[192.0.2.7]",
	} {
		k := KubeDNS{Network: config.Network{Backend: backend, ClusterCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/56")}}}
		trimmed, err := kube.Trim(trimNode)(n)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(k.listen(trimmed.(*corev1.Node))); got != want {
			t.Errorf("%s: %s, want %s", backend, got, want)
		}
	}
}
