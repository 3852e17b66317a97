package servicelb

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/kube"
)

// TestListening looks for sockets of the test itself.
func TestListening(t *testing.T) {
	own := netip.MustParseAddr("127.0.0.2") // stands for an address of the node
	for _, test := range []struct {
		network, address string
		protocol         corev1.Protocol
		held             bool
	}{
		{"tcp4", "0.0.0.0:0", corev1.ProtocolTCP, true},
		{"tcp", "[::]:0", corev1.ProtocolTCP, true},
		{"tcp6", "[::]:0", corev1.ProtocolTCP, true},
		{"tcp", "127.0.0.1:0", corev1.ProtocolTCP, false},
		{"tcp", "127.0.0.2:0", corev1.ProtocolTCP, true},
		{"udp4", "0.0.0.0:0", corev1.ProtocolUDP, true},
		{"udp", "127.0.0.1:0", corev1.ProtocolUDP, false},
		{"udp", "127.0.0.2:0", corev1.ProtocolUDP, true},
	} {
		t.Run(test.network+" "+test.address, func(t *testing.T) {
			var at net.Addr
			if test.protocol == corev1.ProtocolTCP {
				l, err := net.Listen(test.network, test.address)
				if err != nil {
					t.Skipf("this machine has no such address: %v", err)
				}
				defer l.Close()
				at = l.Addr()
			} else {
				c, err := net.ListenPacket(test.network, test.address)
				if err != nil {
					t.Skipf("this machine has no such address: %v", err)
				}
				defer c.Close()
				at = c.LocalAddr()
			}
			p := port{int32(netip.MustParseAddrPort(at.String()).Port()), test.protocol}
			got, err := listening([]port{p}, []netip.Addr{own})
			if err != nil {
				t.Skipf("this kernel does not tell of sockets: %v", err)
			}
			if (len(got) > 0) != test.held {
				t.Fatalf("found %v", got)
			}
			if test.held && !strings.Contains(holders(got)[got[0].inode], fmt.Sprintf("(pid %d)", os.Getpid())) {
				t.Errorf("it is said to be %v", holders(got))
			}
			other := port{p.number, corev1.ProtocolSCTP}
			if got, err := listening([]port{other}, nil); len(got) > 0 || err != nil {
				t.Errorf("another protocol has %v, %v", got, err)
			}
		})
	}
}

// TestPorts asks a node about a pod's host port and a socket, and then nothing more.
func TestPorts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := netip.MustParseAddrPort(l.Addr().String()).Port()
	n := member("boat", "192.0.2.1", silent, external("203.0.113.9"), func(n *corev1.Node) {
		n.Annotations[askedAnnotation] = fmt.Sprintf("81/TCP,82/TCP,%d/TCP,x", taken)
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, Spec: corev1.PodSpec{
		NodeName: "boat", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 81}}}},
	}}
	over := pod.DeepCopy()
	over.Name, over.Spec.Containers[0].Ports[0].HostPort, over.Status.Phase = "over", 82, corev1.PodSucceeded
	client := fake.NewClientset(n, pod, over)
	own := kube.NewOwnNode("", "boat")
	own.Set(n)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		Ports{Node: own}.run(ctx, client)
	}()
	read := func() *corev1.Node {
		t.Helper()
		got, err := client.CoreV1().Nodes().Get(ctx, "boat", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for read().Annotations[heldAnnotation] == "" && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	got := read()
	var a answer
	if err := json.Unmarshal([]byte(got.Annotations[heldAnnotation]), &a); err != nil {
		t.Fatal(err)
	}
	if a.Asked != n.Annotations[askedAnnotation] || a.Held["81/TCP"] != "pod a/b (hostPort)" || a.Held["82/TCP"] != "" ||
		a.Held[fmt.Sprintf("%d/TCP", taken)] == "" || fmt.Sprint(a.NAT) != "[203.0.113.9]" {
		t.Errorf("it says %+v", a)
	}
	delete(got.Annotations, askedAnnotation)
	own.Set(got)
	for read().Annotations[heldAnnotation] != "" {
		if ctx.Err() != nil {
			t.Fatal("the answer stays although nothing is asked")
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	<-stopped
}
