package flannel

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
	"github.com/coracle-dev/coracle/test/golden"
)

var (
	four, six = netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")
	addr4     = netip.MustParseAddr("192.0.2.10")
	addr6     = netip.MustParseAddr("2001:db8::10")
)

func TestConfigurationLists(t *testing.T) {
	list, err := CNI{File: "/etc/cni/net.d/10-coracle.conflist", Bridge: "cni0", SubnetFile: "/run/coracle/subnet.json",
		StateDir: "/var/lib/coracle/node/cni", PolicySocket: "/run/coracle/policy.sock"}.Render()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/cni.golden", list)
	for name, f := range map[string]Flannel{
		"vxlan.golden":     {Backend: "vxlan", ClusterCIDRs: []netip.Prefix{four}},
		"wireguard.golden": {Backend: "wireguard-native", ClusterCIDRs: []netip.Prefix{four}},
		"hostgw.golden":    {Backend: "host-gw", ClusterCIDRs: []netip.Prefix{six, four}},
	} {
		f.ConfigFile = filepath.Join(t.TempDir(), "flannel.json")
		config, err := f.write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(f.ConfigFile)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "testdata/"+name, data)
		if config.BackendType != strings.TrimSuffix(f.Backend, "-native") || !config.EnableNFTables {
			t.Errorf("%s is read as %+v", name, config)
		}
	}
}

func TestSubnet(t *testing.T) {
	ethernet, lo := &net.Interface{MTU: 1500}, &net.Interface{MTU: 65536, Flags: net.FlagLoopback}
	tests := []struct {
		name, backend string
		link          *net.Interface
		v6            bool
		podCIDRs      []string
		want          string
	}{
		{"vxlan", "vxlan", ethernet, false, []string{"10.42.3.0/24"}, `{"podCIDRs":["10.42.3.0/24"],"mtu":1450,"clusterCIDRs":["10.42.0.0/16"]}`},
		{"vxlan over IPv6", "vxlan", ethernet, true, []string{"10.42.3.0/24"}, `{"podCIDRs":["10.42.3.0/24"],"mtu":1430,"clusterCIDRs":["10.42.0.0/16"]}`},
		{"wireguard", "wireguard-native", ethernet, false, []string{"10.42.3.0/24"}, `{"podCIDRs":["10.42.3.0/24"],"mtu":1420,"clusterCIDRs":["10.42.0.0/16"]}`},
		{"host-gw", "host-gw", ethernet, false, []string{"10.42.3.0/24"}, `{"podCIDRs":["10.42.3.0/24"],"mtu":1500,"clusterCIDRs":["10.42.0.0/16"]}`},
		{"loopback only", "vxlan", lo, false, []string{"10.42.3.0/24"}, `{"podCIDRs":["10.42.3.0/24"],"mtu":1500,"clusterCIDRs":["10.42.0.0/16"]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Flannel{Backend: tt.backend, ClusterCIDRs: []netip.Prefix{four}}
			link := &backend.ExternalInterface{Iface: tt.link}
			if tt.v6 {
				link.ExtV6Addr = addr6.AsSlice()
			}
			s, err := f.subnet(tt.podCIDRs, link)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "subnet.json")
			if err := s.Write(file); err != nil {
				t.Fatal(err)
			}
			read, err := podsubnet.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(read)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got %s want %s", got, tt.want)
			}
		})
	}
	if got := podsubnet.Gateway(netip.MustParsePrefix("10.42.3.0/24")).String(); got != "10.42.3.1/24" {
		t.Errorf("gateway is %s", got)
	}
	if _, err := (Flannel{}).subnet([]string{"nonsense"}, &backend.ExternalInterface{Iface: ethernet}); err == nil {
		t.Error("nonsense is taken for a subnet")
	}
}

// nodeNamed returns a node that says how its pods are reached.
func nodeNamed(name string, podCIDRs []string, attrs *lease.LeaseAttrs) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations(attrs)}}
	node.Spec.PodCIDRs = podCIDRs
	return node
}

func TestLease(t *testing.T) {
	cluster := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")}
	both := &lease.LeaseAttrs{BackendType: "vxlan", PublicIP: ip.FromIP(addr4.AsSlice()), PublicIPv6: ip.FromIP6(addr6.AsSlice()),
		BackendData: json.RawMessage(`{"VNI":1,"VtepMAC":"aa:bb:cc:00:11:22"}`), BackendV6Data: json.RawMessage(`{"VNI":1,"VtepMAC":"aa:bb:cc:00:11:33"}`)}
	v4 := &lease.LeaseAttrs{BackendType: "host-gw", PublicIP: both.PublicIP}
	tests := []struct {
		name     string
		dual     bool
		podCIDRs []string
		attrs    *lease.LeaseAttrs
		ok       bool
		subnet   string
	}{
		{"IPv4", false, []string{"10.42.1.0/24"}, v4, true, "10.42.1.0/24"},
		{"dual stack", true, []string{"10.42.1.0/24", "fd42:0:0:1::/64"}, both, true, "10.42.1.0/24"},
		{"outside", false, []string{"198.51.100.0/24"}, v4, false, ""},
		{"larger than the cluster's", false, []string{"10.0.0.0/8"}, v4, false, ""},
		{"an older node's half", false, []string{"10.42.7.128/25"}, v4, false, ""},
		{"a younger node's", false, []string{"10.42.8.0/24"}, v4, true, "10.42.8.0/24"},
		{"one family missing", true, []string{"10.42.1.0/24"}, both, false, ""},
		{"one address missing", true, []string{"10.42.1.0/24", "fd42:0:0:1::/64"}, v4, false, ""},
		{"no subnet", false, nil, v4, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &manager{config: &subnet.Config{EnableIPv4: true, EnableIPv6: tt.dual}, cidrs: cluster}
			b := nodeNamed("b", tt.podCIDRs, tt.attrs)
			b.CreationTimestamp = metav1.Unix(100, 0)
			older, younger := nodeNamed("z", []string{"10.42.7.0/24"}, v4), nodeNamed("a", []string{"10.42.8.0/25"}, v4)
			older.CreationTimestamp, younger.CreationTimestamp = metav1.Unix(99, 0), metav1.Unix(101, 0)
			l, ok := m.leaseOf(b, []*corev1.Node{younger, older, b})
			if ok != tt.ok || ok && (l.Subnet.String() != tt.subnet || l.EnableIPv6 != tt.dual) {
				t.Errorf("got %v %+v", ok, l)
			}
		})
	}
	foreign := nodeNamed("b", []string{"10.42.1.0/24"}, v4)
	foreign.Annotations[managedKey] = "false"
	m := &manager{config: &subnet.Config{EnableIPv4: true}, cidrs: cluster}
	if _, ok := m.leaseOf(foreign, nil); ok {
		t.Error("a node whose subnet flannel does not manage gives a lease")
	}
	if _, ok := m.leaseOf(&corev1.Node{}, nil); ok {
		t.Error("a node without annotations gives a lease")
	}
}

// TestSubnetConflict: who has a subnet first keeps it, whatever comes first in the watch.
func TestSubnetConflict(t *testing.T) {
	attrs := &lease.LeaseAttrs{BackendType: "host-gw", PublicIP: ip.FromIP(addr4.AsSlice())}
	older, younger := nodeNamed("z", []string{"10.42.1.0/24"}, attrs), nodeNamed("a", []string{"10.42.1.128/25"}, attrs)
	older.CreationTimestamp, younger.CreationTimestamp = metav1.Unix(99, 0), metav1.Unix(100, 0)
	var events []string
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	w := watched{
		manager: &manager{config: &subnet.Config{EnableIPv4: true}, cidrs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
		known:   map[string]lease.Lease{},
		send: func(kind lease.EventType, l lease.Lease) {
			events = append(events, map[lease.EventType]string{lease.EventAdded: "+", lease.EventRemoved: "-"}[kind]+l.Subnet.String())
		},
	}
	for _, step := range []struct {
		was, is any
		want    string
	}{
		{nil, younger, "+10.42.1.128/25"},
		{nil, older, "-10.42.1.128/25 +10.42.1.0/24"},
		{younger, younger, ""},
		{older, nil, "-10.42.1.0/24 +10.42.1.128/25"},
		{nil, older, "-10.42.1.128/25 +10.42.1.0/24"},
		{younger, nil, ""},
	} {
		events = nil
		var err error
		if step.is != nil {
			err = store.Add(step.is)
		} else {
			err = store.Delete(step.was)
		}
		w.changed(step.was, step.is, store)
		if got := strings.Join(events, " "); got != step.want || err != nil {
			t.Errorf("sent %q, want %q (%v)", got, step.want, err)
		}
	}
}

func TestAcquireLease(t *testing.T) {
	attrs := &lease.LeaseAttrs{BackendType: "vxlan", PublicIP: ip.FromIP(addr4.AsSlice()), BackendData: json.RawMessage(`{"VNI":1,"VtepMAC":"aa:bb:cc:00:11:22"}`)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"other": "kept"}}}
	node.Spec.PodCIDRs = []string{"10.42.1.0/24"}
	client := fake.NewClientset(node)
	own := kube.NewOwnNode("", "a")
	own.Set(node)
	m := &manager{config: &subnet.Config{EnableIPv4: true}, node: own, own: client}

	l, err := m.AcquireLease(t.Context(), attrs)
	if err != nil {
		t.Fatal(err)
	}
	if l.Subnet.String() != "10.42.1.0/24" {
		t.Errorf("leased %s", l.Subnet)
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Annotations["other"] != "kept" || got.Annotations[backendDataKey] != string(attrs.BackendData) || got.Annotations[publicIPKey] != "192.0.2.10" {
		t.Errorf("the node says %v", got.Annotations)
	}
	own.Set(got)
	if v4, v6 := m.GetStoredMacAddresses(t.Context()); v4 != "aa:bb:cc:00:11:22" || v6 != "" {
		t.Errorf("stored MACs are %q and %q", v4, v6)
	}
	writes := len(client.Actions())
	if _, err := m.AcquireLease(t.Context(), attrs); err != nil {
		t.Fatal(err)
	}
	if len(client.Actions()) != writes {
		t.Error("it writes what the node says already")
	}
}

// TestPublishIsTriedAgain: a request that fails does not end the node, which serves its own pods without it.
func TestPublishIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.42.1.0/24"}}}
		client, tries := fake.NewClientset(node), 0
		client.PrependReactor("patch", "nodes", func(clientgotesting.Action) (bool, runtime.Object, error) {
			tries++
			return tries < 5, nil, errors.New("write: broken pipe")
		})
		own := kube.NewOwnNode("", "a")
		own.Set(node)
		m := &manager{config: &subnet.Config{EnableIPv4: true}, node: own, own: client}
		if _, err := m.AcquireLease(t.Context(), &lease.LeaseAttrs{BackendType: "vxlan"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		got, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || got.Annotations[backendTypeKey] != "vxlan" || tries != 5 {
			t.Errorf("after %d tries the node says %v (%v)", tries, got.Annotations, err)
		}
	})
}

func TestRecall(t *testing.T) {
	cidrs := []netip.Prefix{four, six}
	subnet4, subnet6 := "10.42.3.0/24", "fd42:0:0:3::/64"
	for name, c := range map[string]struct {
		node    string
		subnets []string
		want    int
	}{
		"as before":            {"n", []string{subnet4, subnet6}, 2},
		"another node":         {"m", []string{subnet4, subnet6}, 0},
		"another cluster CIDR": {"n", []string{"10.99.3.0/24", subnet6}, 0},
		"a family less":        {"n", []string{subnet4}, 0},
		"rubbish":              {"n", []string{"x", "y"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "subnet.json")
			remembering := func(node string) *attachment {
				return &attachment{Flannel: Flannel{Node: kube.NewOwnNode("", node), MemoryFile: file, ClusterCIDRs: cidrs}}
			}
			if got := remembering("n").readMemory(); got != nil {
				t.Fatalf("without a file: %v", got)
			}
			if err := atomicfile.WriteJSON(file, memory{Node: c.node, Subnets: c.subnets}, 0o644); err != nil {
				t.Fatal(err)
			}
			if got := remembering("n").readMemory(); len(got) != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
