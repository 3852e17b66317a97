package servicelb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/core/kube"
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
			got, unseen := listening([]port{p}, []netip.Addr{own})
			got = slices.DeleteFunc(got, func(s socket) bool { return s.port != p }) // of other processes
			if len(unseen) > 0 {
				t.Skipf("this kernel does not tell of sockets: %v", unseen)
			}
			if (len(got) > 0) != test.held {
				t.Fatalf("found %v", got)
			}
			if test.held && !strings.Contains(holders(got)[got[0].inode], fmt.Sprintf("(pid %d)", os.Getpid())) {
				t.Errorf("it is said to be %v", holders(got))
			}
			if got, _ := listening(nil, []netip.Addr{own}); slices.ContainsFunc(got, func(s socket) bool { return s.port == p }) != (test.held && test.protocol == corev1.ProtocolTCP) {
				t.Errorf("without a query it is among %v: %t", got, !test.held)
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
		(&Ports{Node: own, listening: listening}).run(ctx, client)
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
	if a.Asked != fmt.Sprintf("81/TCP,82/TCP,%d/TCP", taken) || a.Held["81/TCP"] != "pod a/b (hostPort)" || a.Held["82/TCP"] != "" ||
		a.Held[fmt.Sprintf("%d/TCP", taken)] == "" || fmt.Sprint(a.NAT) != "[203.0.113.9]" {
		t.Errorf("it says %+v", a)
	}
	delete(got.Annotations, askedAnnotation)
	own.Set(got)
	for held := ""; !strings.Contains(held, `"asked":""`) || !strings.Contains(held, fmt.Sprintf("%d/TCP", taken)); held = read().Annotations[heldAnnotation] {
		if ctx.Err() != nil {
			t.Fatalf("without a query it says %s", held)
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	<-stopped
}

// TestLookFails sees that ports which could not be looked at are not said to be free.
func TestLookFails(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, Spec: corev1.PodSpec{
		NodeName: "boat", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 53, Protocol: corev1.ProtocolUDP}}}},
	}}
	const asked, sshd = "22/TCP,53/UDP,54/UDP,80/TCP,81/SCTP", "a process that cannot be seen from here"
	for _, test := range []struct {
		title  string
		unseen []corev1.Protocol
		noPods bool
		about  string
		held   string
	}{
		{"all is seen", nil, false, asked, "map[22/TCP:" + sshd + " 53/UDP:pod a/b (hostPort)]"},
		{"no UDP", []corev1.Protocol{corev1.ProtocolUDP}, false, "22/TCP,53/UDP,80/TCP,81/SCTP", "map[22/TCP:" + sshd + " 53/UDP:pod a/b (hostPort)]"},
		{"no TCP", []corev1.Protocol{corev1.ProtocolTCP}, false, "22/TCP,53/UDP,54/UDP,81/SCTP", "map[22/TCP:" + sshd + " 53/UDP:pod a/b (hostPort)]"},
		{"no pods", nil, true, "22/TCP", "map[22/TCP:" + sshd + "]"},
	} {
		t.Run(test.title, func(t *testing.T) {
			client := fake.NewClientset(pod)
			client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return test.noPods, nil, context.DeadlineExceeded
			})
			p := Ports{listening: func([]port, []netip.Addr) ([]socket, map[corev1.Protocol]error) {
				unseen := map[corev1.Protocol]error{}
				for _, protocol := range test.unseen {
					unseen[protocol] = errors.ErrUnsupported
				}
				return []socket{{port{22, corev1.ProtocolTCP}, ^uint32(0)}}, unseen // of the other family, say
			}}
			text, valid := p.look(t.Context(), client, member("boat", "192.0.2.1"), asked)
			var a answer
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err)
			}
			if a.Asked != test.about || fmt.Sprint(a.Held) != test.held {
				t.Errorf("about %s it says %v, not %s about %s", a.Asked, a.Held, test.held, test.about)
			}
			if (valid < checkInterval) != test.noPods {
				t.Errorf("it is good for %s", valid)
			}
		})
	}
}
