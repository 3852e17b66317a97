package nodeclaims

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func node(name, ip string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	return n
}

// TestClaimsFollowNodes: what is left of nodes that go, and of those that went while nobody looked.
func TestClaimsFollowNodes(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	client := fake.NewClientset(node("goes", "192.0.2.1"), node("stays", "192.0.2.2"))
	log := logrus.New()
	log.SetOutput(t.Output())
	claims := endpoint.Claims{Client: client, Log: log}
	for _, name := range []string{"goes", "stays", "went", "comes"} {
		if err := claims.Take(ctx, name, "key", func(*corev1.Node) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	leases := client.CoordinationV1().Leases("kube-system")
	for _, name := range []string{"goes", "stays"} { // Take replaced them
		if _, err := client.CoreV1().Nodes().Create(ctx, node(name, "192.0.2.1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	old := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	lease, err := leases.Get(ctx, endpoint.ClaimPrefix+"went", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &old, &old
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
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
		run(ctx, client, cache.ToListWatcherWithWatchListSemantics(nodes, client))
	}()
	remain := func() string {
		list, err := leases.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range list.Items {
			names = append(names, endpoint.ClaimedBy(l.Name))
		}
		return strings.Join(names, " ")
	}
	await := func(want string) {
		t.Helper()
		for remain() != want {
			if ctx.Err() != nil {
				t.Fatalf("claimed are %s, want %s", remain(), want)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	await("comes goes stays")
	if err := client.CoreV1().Nodes().Delete(ctx, "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("comes stays")
	stop()
	<-stopped
}

func TestMine(t *testing.T) {
	p := TokenPublisher{Node: "a", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	labelled, elsewhere := node("a", "192.0.2.1"), node("a", "192.0.2.9")
	labelled.Labels = map[string]string{kube.ControlPlaneLabel: "true"}
	elsewhere.Labels = labelled.Labels
	for name, test := range map[string]struct {
		node    *corev1.Node
		claimed bool
		want    bool
	}{
		"restored data":             {labelled, true, true},
		"another server":            {elsewhere, true, false},
		"an agent at this address":  {node("a", "192.0.2.1"), true, false},
		"the first start":           {node("a", "192.0.2.1"), false, true},
		"from a time before claims": {labelled, false, true},
	} {
		if got := p.mine(test.node, test.claimed); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
