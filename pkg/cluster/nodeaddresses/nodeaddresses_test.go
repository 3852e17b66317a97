package nodeaddresses

import (
	"context"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider/api"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

var (
	controller = Addresses{Reserved: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.43.0.0/16")}}
	foreign    = corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	marked     = corev1.Taint{Key: cloudprovider.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}
)

// node has an annotation, what its kubelet says of its addresses, and addresses as type and value in turn. "" is absent.
func node(annotation, provided string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "boat", Annotations: map[string]string{}}}
	if annotation != "" {
		n.Annotations[kube.ExternalIPAnnotation] = annotation
	}
	if provided != "" {
		n.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr] = provided
	}
	for i := 0; i < len(addresses); i += 2 {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(addresses[i]), Address: addresses[i+1]})
	}
	return n
}

func TestPlan(t *testing.T) {
	done := []string{"InternalIP", "172.30.0.2", "ExternalIP", "192.0.2.7", "Hostname", "boat"}
	for _, test := range []struct {
		title  string
		node   *corev1.Node
		taints []corev1.Taint
		want   []string // nil: leave them
		left   []corev1.Taint
		wrong  bool
	}{
		{title: "new", node: node("192.0.2.7", "172.30.0.2", "InternalIP", "172.30.0.2", "Hostname", "boat"),
			taints: []corev1.Taint{foreign, marked}, want: done, left: []corev1.Taint{foreign}},
		{title: "done", node: node("192.0.2.7", "172.30.0.2", done...)},
		{title: "done but for the taint", node: node("192.0.2.7", "172.30.0.2", done...), taints: []corev1.Taint{marked}, left: []corev1.Taint{}},
		{title: "another internal address", node: node("192.0.2.7", "172.30.0.2", "InternalIP", "172.30.0.9", "ExternalIP", "192.0.2.7", "Hostname", "boat"), want: done},
		{title: "another external address", node: node("192.0.2.7", "172.30.0.2", "InternalIP", "172.30.0.2", "ExternalIP", "192.0.2.8", "Hostname", "boat"), want: done},
		{title: "two families", node: node("192.0.2.7,2001:db8::7", "172.30.0.2,fd00::2", "Hostname", "boat"),
			want: []string{"InternalIP", "172.30.0.2", "InternalIP", "fd00::2", "ExternalIP", "192.0.2.7", "ExternalIP", "2001:db8::7", "Hostname", "boat"}},
		{title: "no name", node: node("192.0.2.7", "172.30.0.2"), want: done},
		{title: "the kubelet sets them", node: node("192.0.2.7", "", "InternalIP", "172.30.0.2", "Hostname", "boat")},
		{title: "the kubelet sets them again", node: node("192.0.2.7", "", "InternalIP", "172.30.0.2"), taints: []corev1.Taint{marked}, left: []corev1.Taint{}},
		{title: "an address of a Service", node: node("10.43.0.1", "172.30.0.2", "Hostname", "boat"), taints: []corev1.Taint{marked},
			want: []string{"InternalIP", "172.30.0.2", "Hostname", "boat"}, left: []corev1.Taint{}, wrong: true},
		{title: "nonsense from the kubelet", node: node("192.0.2.7", "here", "InternalIP", "172.30.0.2"), wrong: true},
	} {
		t.Run(test.title, func(t *testing.T) {
			test.node.Spec.Taints = test.taints
			p, wrong := controller.plan(test.node)
			var got []string
			for _, a := range p.addresses {
				got = append(got, string(a.Type), a.Address)
			}
			if !reflect.DeepEqual(got, test.want) || (wrong != nil) != test.wrong {
				t.Errorf("got %v, %v", got, wrong)
			}
			if p.untaint != (test.left != nil) || p.untaint && !reflect.DeepEqual(p.taints, test.left) {
				t.Errorf("untaint is %t, left are %v", p.untaint, p.taints)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{
		"192.0.2.7": true, "192.0.2.7,2001:db8::1": true, "10.0.0.1": true,
		"": false, "192.0.2.7,": false, "192.0.2.7, 192.0.2.8": false, "192.0.2.7,192.0.2.7": false, "example.com": false,
		"127.0.0.1": false, "0.0.0.0": false, "::": false, "::1": false, "fe80::1": false, "2001:db8::1%eth0": false, "224.0.0.1": false,
		"169.254.169.254": false, "255.255.255.255": false, "::ffff:192.0.2.7": false, "2001:DB8::1": false, "192.0.2.07": false,
		"10.43.0.1": false, "10.42.3.4": false,
		"1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8,1.1.1.9": false,
	} {
		if ips, err := controller.parse(text); (err == nil) != ok {
			t.Errorf("%q: %v, %v", text, ips, err)
		}
	}
}

// TestRun lets the controller work on a node from its registration on.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := node("192.0.2.7", "172.30.0.2", "InternalIP", "172.30.0.2", "Hostname", "boat")
	n.Spec.Taints = []corev1.Taint{marked, foreign}
	other := node("", "", "InternalIP", "172.30.0.3")
	other.Name, other.Spec.Taints = "other", []corev1.Taint{marked}
	client := fake.NewClientset(n, other)
	nodes := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Nodes().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Nodes().Watch(ctx, o)
		},
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		controller.run(ctx, client, cache.ToListWatcherWithWatchListSemantics(nodes, client))
	}()
	for {
		got, err := client.CoreV1().Nodes().Get(ctx, "boat", metav1.GetOptions{})
		if err != nil || ctx.Err() != nil {
			t.Fatalf("the node is %+v, %v", got, err)
		}
		if len(got.Status.Addresses) == 3 && reflect.DeepEqual(got.Spec.Taints, []corev1.Taint{foreign}) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	got, err := client.CoreV1().Nodes().Get(ctx, "other", metav1.GetOptions{})
	if err != nil || len(got.Spec.Taints) != 1 || len(got.Status.Addresses) != 1 {
		t.Errorf("a node without the annotation became %+v, %v", got, err)
	}
	cancel()
	<-stopped
}

// TestUntaintsWhatItHasSeen: the list of taints is replaced as a whole, and must not lose one that came meanwhile.
func TestUntaintsWhatItHasSeen(t *testing.T) {
	n := node("none", "", "InternalIP", "172.30.0.2", "Hostname", "boat")
	n.ResourceVersion, n.Spec.Taints = "7", []corev1.Taint{marked, foreign}
	client, store := fake.NewClientset(n), cache.NewStore(cache.MetaNamespaceKeyFunc)
	var patches []string
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patches = append(patches, string(action.(clienttesting.PatchAction).GetPatch()))
		return true, n, nil
	})
	if err := store.Add(n); err != nil {
		t.Fatal(err)
	}
	if err := controller.handle(t.Context(), client, store, "boat"); err != nil {
		t.Fatal(err)
	}
	if len(patches) != 1 || !strings.Contains(patches[0], `"resourceVersion":"7"`) || !strings.Contains(patches[0], "dedicated") {
		t.Errorf("the patches are %q", patches)
	}
}

func TestDesired(t *testing.T) {
	tainted := node("192.0.2.7", "")
	tainted.Spec.Taints = []corev1.Taint{marked}
	for _, test := range []struct {
		title   string
		ips     []netip.Addr
		node    *corev1.Node
		want    string
		differs bool
	}{
		{"not registered", []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil, "", false},
		{"new", []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, node("", ""), "192.0.2.7,2001:db8::7", true},
		{"another", []netip.Addr{netip.MustParseAddr("192.0.2.8")}, node("192.0.2.7", ""), "192.0.2.8", true},
		{"the same", []netip.Addr{netip.MustParseAddr("192.0.2.7")}, node("192.0.2.7", ""), "192.0.2.7", false},
		{"none", nil, node("", ""), "", false},
		{"no more", nil, node("192.0.2.7", ""), "", true},
		{"no more, and the taint is still there", nil, tainted, "", false},
	} {
		t.Run(test.title, func(t *testing.T) {
			value, differs := Publisher{IPs: test.ips}.desired(test.node)
			got := ""
			if value != nil {
				got = *value
			}
			if got != test.want || differs != test.differs {
				t.Errorf("got %q, %t", got, differs)
			}
		})
	}
}
