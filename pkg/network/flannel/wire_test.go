package flannel

import (
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/test/golden"
)

func nodeAt(name string, podCIDRs []string, addresses ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Spec.PodCIDRs = podCIDRs
	for _, a := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return node
}

func TestPeersOf(t *testing.T) {
	m := &manager{cidrs: []netip.Prefix{four, six}, node: kube.NewOwnNode("", "own")}
	moved := nodeAt("b", []string{"10.42.2.0/24", "fd42:0:0:2::/64"}, "192.0.2.2", "2001:db8::2", "b.example")
	moved.Annotations = map[string]string{publicIPKey: "192.0.2.22", publicIPv6Key: "2001:db8::2"}
	got := m.peersOf([]*corev1.Node{
		moved,
		nodeAt("c-takes-half-of-b", []string{"10.42.2.128/25"}, "192.0.2.3"),
		nodeAt("d-takes-the-internet", []string{"198.51.100.0/24"}, "192.0.2.4"),
		nodeAt("e-takes-all", []string{"10.0.0.0/8"}, "192.0.2.5"),
		nodeAt("f-has-none", nil, "192.0.2.6"),
		nodeAt("own", []string{"10.42.0.0/24"}, "192.0.2.1"),
		nodeAt("a", []string{"10.42.1.0/24"}, "192.0.2.2"), // another machine has its address now
	})
	v4, v6 := netip.MustParsePrefix("10.42.2.0/24"), netip.MustParsePrefix("fd42:0:0:2::/64")
	want := peers{
		netip.MustParseAddr("192.0.2.2"):   {netip.MustParsePrefix("10.42.1.0/24"), v4},
		netip.MustParseAddr("192.0.2.22"):  {v4},
		netip.MustParseAddr("2001:db8::2"): {v6},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	again := moved.DeepCopy()
	if again.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}; !sameSender(moved, again) {
		t.Error("a node that tells its condition is another sender")
	}
	if again.Status.Addresses[0].Address = "192.0.2.7"; sameSender(moved, again) {
		t.Error("a node with another address is the same sender")
	}
}

var testPeers = peers{
	addr4:                              {netip.MustParsePrefix("10.42.1.0/24")},
	netip.MustParseAddr("192.0.2.11"):  {netip.MustParsePrefix("10.42.2.0/23"), netip.MustParsePrefix("10.42.4.0/24")},
	netip.MustParseAddr("2001:db8::1"): {netip.MustParsePrefix("fd42:0:0:1::/64")},
}

func TestWireRules(t *testing.T) {
	tx := knftables.NewFake(knftables.InetFamily, "coracle-wire").NewTransaction()
	newWire("cni0", []netip.Prefix{four, six}).render(tx, testPeers)
	golden.Check(t, "testdata/wire.golden", []byte(tx.String()))
}

// TestWireKept: the kernel takes the table, and it is written again when another program has deleted it.
func TestWireKept(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	w := newWire("cni0", []netip.Prefix{four, six})
	if err := w.write(t.Context(), testPeers); err != nil {
		t.Fatal(err)
	}
	there := func(want bool) {
		t.Helper()
		if got, err := nft.Exists("inet coracle-wire"); got != want || err != nil {
			t.Errorf("the table is there: %t, %v", got, err)
		}
	}
	there(true)
	if err := nft.Remove("inet coracle-wire", "ip other"); err != nil {
		t.Fatal(err)
	}
	there(false)
}

// TestWireRetries: only changes are written, and failures again.
func TestWireRetries(t *testing.T) {
	w := newWire("cni0", []netip.Prefix{four})
	fake := knftables.NewFake(knftables.InetFamily, "coracle-wire")
	opened := make(chan struct{}, 10)
	w.open = func() (knftables.Interface, error) {
		opened <- struct{}{}
		if len(opened) == 1 {
			return nil, os.ErrPermission
		}
		return fake, nil
	}
	tried := make(chan struct{})
	go w.keep(t.Context(), tried)
	for range 3 {
		w.set(func() peers { return peers{addr4: {netip.MustParsePrefix("10.42.1.0/24")}} })
	}
	<-tried
	deadline := time.After(time.Minute)
	for range 2 {
		select {
		case <-opened:
		case <-deadline:
			t.Fatal("a failure is not tried again")
		}
	}
}
