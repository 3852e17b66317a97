package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testTakenPorts is a user who may edit one namespace and wants ports of addresses that belong to others: the API, kubelets, a
// process of a node, another Service.
func (b *balancers) testTakenPorts(t *testing.T) {
	b.Servers[0].Kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant")
	config, err := b.Config(b.Servers[0], hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "tenant"}
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	services := tenant.CoreV1().Services("default")
	server, agent, victim := b.Servers[0].IP, b.Agents[0].IP, b.Agents[1]

	// The victim runs a program on a port, which its node has reported since a Service asked for the port.
	const held = 2223
	listen(t, victim, held, "the program")
	onHeld := func(s *corev1.Service) { s.Spec.Ports[0].Port = held }
	b.create(t, "refused", "web", onHeld)
	b.await(t, "refused", time.Minute, b.Servers[0], b.Agents[0])
	b.create(t, "holder", "web", nil)
	b.await(t, "holder", time.Minute, b.Hosts()...)

	take := func(name string, port int32, protocol corev1.Protocol, addrs ...netip.Addr) error {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: port, Protocol: protocol, TargetPort: intstr.FromInt(8080)}},
		}}
		for _, a := range addrs {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
		}
		_, err := services.Create(t.Context(), s, metav1.CreateOptions{})
		t.Cleanup(func() { b.remove(t, name) })
		return err
	}
	for name, c := range map[string]struct {
		port     int32
		protocol corev1.Protocol
		addr     netip.Addr
		want     string
	}{
		"api":      {6443, corev1.ProtocolTCP, server, "held by coracle (API server) on node server-1"},
		"kubelet":  {10250, corev1.ProtocolTCP, agent, "held by coracle (kubelet) on node agent-1"},
		"vxlan":    {8472, corev1.ProtocolUDP, agent, "held by coracle (vxlan) on node agent-1"},
		"service":  {443, corev1.ProtocolTCP, netip.MustParseAddr("10.43.0.1"), "is in the range 10.43.0.0/16"},
		"process":  {held, corev1.ProtocolTCP, victim.IP, "on node agent-2"},
		"balancer": {80, corev1.ProtocolTCP, agent, "held by Service default/holder"},
	} {
		err := take("take-"+name, c.port, c.protocol, c.addr)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: port %d of %s: %v, not %q", name, c.port, c.addr, err, c.want)
		}
	}
	for _, h := range b.Agents {
		conn, err := h.Dial(t.Context(), "tcp", netip.AddrPortFrom(server, 6443).String())
		if err != nil {
			t.Fatalf("%s is cut off the API: %v", h.Name, err)
		}
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the tenant's pods have no TLS
		if err := secured.Handshake(); err != nil {
			t.Errorf("%s reaches something else than the API: %v", h.Name, err)
		}
		conn.Close()
	}
	if err := take("take-free", 8088, corev1.ProtocolTCP, server, agent); err != nil {
		t.Errorf("a free port of nodes' addresses: %v", err)
	}
	expect(t, "web-", func() (string, error) { return b.outside.Get(url(agent, 8088, "/hostname")) })

	// A balancer that has addresses gets a port that is taken: on no node may packets reach its pods for a moment.
	b.remove(t, "refused")
	b.create(t, "racing", "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	b.await(t, "racing", time.Minute, b.Hosts()...)
	port := func(n int32) error {
		body := fmt.Sprintf(`[{"op":"replace","path":"/spec/ports/0/port","value":%d}]`, n)
		_, err := services.Patch(t.Context(), "racing", types.JSONPatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	for n, want := range map[int32]string{10250: "held by coracle (kubelet)", 80: "held by Service default/holder"} {
		if err := port(n); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("port %d of a balancer with addresses: %v, not %q", n, err, want)
		}
	}
	b.await(t, "racing", 0, b.Hosts()...)
	wrong, stop := b.ask(t, netip.AddrPortFrom(victim.IP, held), "the program")
	for range 2 {
		if err := port(held); err != nil {
			t.Fatal(err)
		}
		b.await(t, "racing", time.Minute, b.Servers[0], b.Agents[0])
		if err := port(81); err != nil {
			t.Fatal(err)
		}
		b.await(t, "racing", time.Minute, b.Hosts()...)
	}
	stop()
	if n := len(wrong); n > 0 {
		t.Errorf("%d connections did not reach the program: %s", n, <-wrong)
	}
}

// listen runs a program on a host that greets on a port until the test ends.
func listen(t *testing.T, h *hosts.Host, port int, greeting string) {
	t.Helper()
	listener := h.Listen("tcp", fmt.Sprintf(":%d", port))
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, greeting) // the peer may be gone
			conn.Close()
		}
	}()
}

// ask connects to an address again and again until stop is called. It collects what went wrong.
func (b *balancers) ask(t *testing.T, at netip.AddrPort, greeting string) (wrong chan string, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	wrong, done := make(chan string, 10000), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			conn, err := b.outside.Dial(ctx, "tcp", at.String())
			got := []byte(nil)
			if err == nil {
				_ = conn.SetDeadline(time.Now().Add(2 * time.Second)) // a web server waits for a request
				got, err = io.ReadAll(conn)
				conn.Close()
			}
			if string(got) != greeting && ctx.Err() == nil {
				wrong <- fmt.Sprintf("got %q, %v", got, err)
			}
		}
	}()
	return wrong, func() { cancel(); <-done }
}
