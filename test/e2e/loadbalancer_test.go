package e2e

import (
	"context"
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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// balancers is a cluster for Services of type LoadBalancer: a server, two agents, and a client that is not a node.
type balancers struct {
	*hosts.Cluster
	client  kubernetes.Interface
	outside *hosts.Host
}

// TestLoadBalancer runs Services of type LoadBalancer in a dual-stack cluster. The cases use the same ports, one after
// the other.
func TestLoadBalancer(t *testing.T) {
	slots.Take(t)
	f := flavours["vxlan, dual stack"]
	c := hosts.NewCluster(t, hosts.Plan{
		Servers: 1, Agents: 2, Images: true, Net: netip.MustParsePrefix(f.wire), ServerArgs: append(slices.Clone(f.serverArgs), poolArgs), Prepare: f.prepare,
	})
	client, err := c.Client(c.Servers[0], hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancers{Cluster: c, client: client, outside: hosts.New(t, c.Wire, "outside", hosts.Options{})}
	f.prepare(b.outside)
	c.Servers[0].Apply(manifest(t, "loadbalancer.yaml"))
	for _, d := range []string{"daemonset/web", "deployment/lone"} {
		c.Servers[0].Kubectl("rollout", "status", d, "--timeout=3m")
	}
	c.Servers[0].Kubectl("wait", "--for=condition=Ready", "pod/hostport", "--timeout=3m")
	t.Run("address", b.testAddress)
	t.Run("two families", b.testFamilies)
	t.Run("UDP beside TCP", b.testUDP)
	t.Run("externalTrafficPolicy Local", b.testLocal)
	t.Run("loadBalancerSourceRanges", b.testSourceRanges)
	t.Run("loadBalancerClass", b.testClass)
	t.Run("a port twice", b.testTwice)
	t.Run("ports of nodes", b.testPortsOfNodes)
	t.Run("ports of others", b.testTakenPorts)
	t.Run("type changes", b.testType)
	t.Run("labels", b.testLabels)
	t.Run("node loss", b.testLoss)
	t.Run("address of a pool", b.testPool)
	t.Run("MetalLB's pools", b.testMetalLB)
	t.Run("loss of a pool's node", b.testPoolLoss)
	t.Run("external address behind a NAT", b.testNAT)
	t.Run("switched off", b.testDisabled)
}

// create makes a Service for an app, port 80 to 8080 unless change modifies it, and deletes it when the test ends.
func (b *balancers) create(t *testing.T, name, app string, change func(*corev1.Service)) *corev1.Service {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": app},
		Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(8080)}},
	}}
	if change != nil {
		change(s)
	}
	s, err := b.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.remove(t, name) })
	return s
}

// remove deletes a Service and waits until it is gone.
func (b *balancers) remove(t *testing.T, name string) {
	t.Helper()
	services := b.client.CoreV1().Services("default")
	_ = services.Delete(context.Background(), name, metav1.DeleteOptions{}) // a test may have deleted it
	hosts.Eventually(t, time.Minute, func() error {
		if s, err := services.Get(context.Background(), name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("it is still there: %v", s.Finalizers)
		}
		return nil
	})
}

func (b *balancers) get(t *testing.T, name string) *corev1.Service {
	t.Helper()
	s, err := b.client.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addressesOf(s *corev1.Service) (all []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		all = append(all, i.IP)
	}
	return all
}

// await waits until a Service has exactly the first addresses of some hosts, and reports how long it took.
func (b *balancers) await(t *testing.T, name string, within time.Duration, want ...*hosts.Host) time.Duration {
	t.Helper()
	began := time.Now()
	var ips []string
	for _, h := range want {
		ips = append(ips, h.IP.String())
	}
	slices.Sort(ips)
	for {
		s := b.get(t, name)
		got := addressesOf(s)
		slices.Sort(got)
		if slices.Equal(got, ips) {
			return time.Since(began)
		}
		if time.Since(began) > within {
			t.Fatalf("after %s %s has %v, not %v: %+v", within, name, got, ips, s.Status.Conditions)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// answers waits until a host that is not a node gets an answer containing want through every address.
func (b *balancers) answers(t *testing.T, path, want string, at ...*hosts.Host) {
	t.Helper()
	for _, h := range at {
		expect(t, want, func() (string, error) { return b.outside.Get(url(h.IP, 80, path)) })
	}
}

// says waits for an event of a Service, and for a condition with the same message.
func (b *balancers) says(t *testing.T, name, reason, words string) {
	t.Helper()
	hosts.Eventually(t, time.Minute, func() error {
		events, err := b.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "Service" && e.InvolvedObject.Name == name && e.Reason == reason {
				all = append(all, e.Message)
			}
		}
		if err := contains("events", strings.Join(all, "\n"), words); err != nil {
			return err
		}
		var conditions []string
		for _, c := range b.get(t, name).Status.Conditions {
			conditions = append(conditions, c.Type+" "+c.Message)
		}
		return contains("conditions", strings.Join(conditions, "\n"), words)
	})
}

func (b *balancers) testAddress(t *testing.T) {
	b.create(t, "first", "web", nil)
	t.Logf("first address after %s", b.await(t, "first", time.Minute, b.Hosts()...).Round(time.Millisecond))
	b.remove(t, "first")
	best := time.Minute
	for i := range 3 {
		if i > 0 {
			b.remove(t, "web")
		}
		b.create(t, "web", "web", nil)
		best = min(best, b.await(t, "web", time.Minute, b.Hosts()...))
	}
	t.Logf("address after %s", best.Round(time.Millisecond))
	if best > 3*time.Second { // tests run on busy machines; the benchmark checks for a second
		t.Errorf("the address took %s", best)
	}
	b.answers(t, "/hostname", "web-", b.Hosts()...)
	s := b.get(t, "web")
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
			t.Errorf("ipMode of %s is %v", i.IP, i.IPMode)
		}
	}
	pods, err := b.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Namespace != "default" {
			t.Errorf("there is a pod %s/%s", p.Namespace, p.Name)
		}
	}
}

func (b *balancers) testFamilies(t *testing.T) {
	policy := corev1.IPFamilyPolicyRequireDualStack
	b.create(t, "both", "web", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &policy })
	var want []string
	for _, second := range []bool{false, true} {
		for _, h := range []*hosts.Host{b.Servers[0], b.Agents[0], b.Agents[1]} {
			ip := h.IP
			if second {
				ip = sixth(ip)
			}
			want = append(want, ip.String())
		}
	}
	slices.Sort(want)
	hosts.Eventually(t, time.Minute, func() error {
		got := addressesOf(b.get(t, "both"))
		if len(got) == 6 && (!strings.Contains(got[0], ".") || !strings.Contains(got[5], ":")) {
			t.Errorf("the first family is not first: %v", got)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("the addresses are %v, not %v", got, want)
		}
		return nil
	})
	for _, h := range b.Hosts() {
		expect(t, "web-", func() (string, error) { return b.outside.Get(url(sixth(h.IP), 80, "/hostname")) })
	}
}

func (b *balancers) testUDP(t *testing.T) {
	b.create(t, "tcp", "web", nil)
	b.create(t, "udp", "web", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt(8081)}}
	})
	b.await(t, "tcp", time.Minute, b.Hosts()...)
	b.await(t, "udp", time.Minute, b.Hosts()...)
	for _, h := range b.Hosts() {
		expect(t, "web-", func() (string, error) {
			conn, err := b.outside.Dial(t.Context(), "udp", net.JoinHostPort(h.IP.String(), "80"))
			if err != nil {
				return "", err
			}
			defer conn.Close()
			answer := make([]byte, 100)
			_, err = conn.Write([]byte("hostname"))
			deadlineErr := conn.SetDeadline(time.Now().Add(2 * time.Second))
			n, readErr := conn.Read(answer)
			return string(answer[:n]), errors.Join(err, deadlineErr, readErr)
		})
	}
}

// testLocal: only the node with the pod is listed, the pod sees the client's address, and the address follows the pod.
func (b *balancers) testLocal(t *testing.T) {
	b.create(t, "lone", "lone", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	b.await(t, "lone", time.Minute, b.Agents[0])
	b.answers(t, "/clientip", b.outside.IP.String()+":", b.Agents[0])
	b.Servers[0].Kubectl("patch", "deployment", "lone", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"agent-2"}}}}}`)
	b.await(t, "lone", 2*time.Minute, b.Agents[1])
	b.answers(t, "/clientip", b.outside.IP.String()+":", b.Agents[1])
	b.Servers[0].Kubectl("scale", "deployment", "lone", "--replicas=0")
	b.await(t, "lone", 2*time.Minute, b.Hosts()...) // no endpoint yet, so all nodes are listed
}

func (b *balancers) testSourceRanges(t *testing.T) {
	b.create(t, "closed", "web", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
	b.await(t, "closed", time.Minute, b.Hosts()...)
	hosts.Eventually(t, time.Minute, func() error { // the rules follow the address a moment later
		if _, err := b.outside.Get(url(b.Agents[0].IP, 80, "/hostname")); err == nil {
			return errors.New("who is not in the range is let in")
		}
		return nil
	})
	b.Servers[0].Kubectl("patch", "service", "closed", "-p", `{"spec":{"loadBalancerSourceRanges":["`+b.outside.IP.String()+`/32"]}}`)
	b.answers(t, "/hostname", "web-", b.Agents[0])
}

func (b *balancers) testClass(t *testing.T) {
	class, own := "example.com/other", "coracle.io/node"
	b.create(t, "other", "web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })
	b.create(t, "own", "web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &own })
	b.await(t, "own", time.Minute, b.Hosts()...)
	if s := b.get(t, "other"); len(s.Status.LoadBalancer.Ingress) > 0 || len(s.Finalizers) > 0 || len(s.Status.Conditions) > 0 {
		t.Errorf("a Service of another class became %+v", s)
	}
}

func (b *balancers) testTwice(t *testing.T) {
	b.create(t, "holder", "web", nil)
	b.await(t, "holder", time.Minute, b.Hosts()...)
	b.create(t, "loser", "lone", nil)
	b.says(t, "loser", "PortTaken", "port 80/TCP is held by Service default/holder on nodes agent-1, agent-2, server-1")
	b.await(t, "holder", 0, b.Hosts()...)
	b.await(t, "loser", 0)
	b.remove(t, "holder")
	t.Logf("the other one had the port after %s", b.await(t, "loser", time.Minute, b.Hosts()...).Round(time.Millisecond))
}

// testPortsOfNodes: ports that nodes use themselves are refused on these nodes.
func (b *balancers) testPortsOfNodes(t *testing.T) {
	listener := b.Agents[1].Listen("tcp", ":2222")
	defer listener.Close()
	tcp := func(port int32) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.Ports[0].Port = port }
	}
	b.create(t, "api", "web", tcp(6443))
	b.create(t, "kubelet", "web", tcp(10250))
	b.create(t, "vxlan", "web", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 8472, Protocol: corev1.ProtocolUDP}}
	})
	b.create(t, "listener", "web", tcp(2222))
	b.create(t, "pod", "web", tcp(18080))
	b.await(t, "api", time.Minute, b.Agents...)
	b.says(t, "api", "PortTaken", "port 6443/TCP is held by coracle (API server) on node server-1")
	b.says(t, "kubelet", "PortTaken", "port 10250/TCP is held by coracle (kubelet) on nodes agent-1, agent-2, server-1")
	b.says(t, "vxlan", "PortTaken", "port 8472/UDP is held by coracle (vxlan)")
	b.await(t, "listener", time.Minute, b.Servers[0], b.Agents[0])
	b.says(t, "listener", "PortTaken", "on node agent-2")
	b.await(t, "pod", time.Minute, b.Servers[0], b.Agents[1])
	b.says(t, "pod", "PortTaken", "port 18080/TCP is held by pod default/hostport (hostPort) on node agent-1")
	for _, name := range []string{"kubelet", "vxlan"} {
		b.await(t, name, 0)
	}
}

func (b *balancers) testType(t *testing.T) {
	b.create(t, "changing", "web", nil)
	b.await(t, "changing", time.Minute, b.Hosts()...)
	b.Servers[0].Kubectl("patch", "service", "changing", "-p", `{"spec":{"type":"ClusterIP"}}`)
	hosts.Eventually(t, time.Minute, func() error {
		if s := b.get(t, "changing"); len(s.Finalizers)+len(s.Status.Conditions)+len(s.Status.LoadBalancer.Ingress) > 0 {
			return fmt.Errorf("it still has %v, %v", s.Finalizers, s.Status)
		}
		return nil
	})
	b.Servers[0].Kubectl("patch", "service", "changing", "-p", `{"spec":{"type":"LoadBalancer"}}`)
	b.await(t, "changing", time.Minute, b.Hosts()...)
}

func (b *balancers) testLabels(t *testing.T) {
	kubectl := b.Servers[0].Kubectl
	b.create(t, "chosen", "web", nil)
	b.await(t, "chosen", time.Minute, b.Hosts()...)
	for _, label := range []string{"svccontroller.k3s.cattle.io/enablelb", "node.coracle.io/load-balancer"} {
		kubectl("label", "node", "agent-1", label+"=true")
		b.await(t, "chosen", time.Minute, b.Agents[0])
		kubectl("label", "node", "agent-1", label+"-")
		b.await(t, "chosen", time.Minute, b.Hosts()...)
	}
	kubectl("label", "node", "agent-1", "node.kubernetes.io/exclude-from-external-load-balancers=")
	b.await(t, "chosen", time.Minute, b.Servers[0], b.Agents[1])
	kubectl("label", "node", "agent-1", "node.kubernetes.io/exclude-from-external-load-balancers-")
	b.await(t, "chosen", time.Minute, b.Hosts()...)
}

// testLoss: the address of a node that vanishes is withdrawn long before the node becomes not Ready.
func (b *balancers) testLoss(t *testing.T) {
	b.create(t, "surviving", "web", nil)
	b.await(t, "surviving", time.Minute, b.Hosts()...)
	b.Links.Isolate(b.Agents[1])
	t.Logf("the address of a node that vanished was taken back after %.1f s", b.await(t, "surviving", 25*time.Second, b.Servers[0], b.Agents[0]).Seconds())
	b.Links.Heal()
	t.Logf("it came back after %.1f s", b.await(t, "surviving", 2*time.Minute, b.Hosts()...).Seconds())
}

// restart restarts coracle on a host with an additional line of configuration.
func (b *balancers) restart(t *testing.T, h *hosts.Host, line string) {
	t.Helper()
	if err := os.WriteFile(h.Path("/etc/coracle/config.yaml"), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Running(h).Stop(); err != nil {
		t.Fatal(err)
	}
	b.Start(h)
}

// testNAT: no interface of agent-2 has its external address. The client's host is the NAT in front of it.
func (b *balancers) testNAT(t *testing.T) {
	const public = "203.0.113.7"
	agent := b.Agents[1]
	b.Servers[0].Kubectl("annotate", "node", agent.Name, "coracle.io/allowed-addresses="+public) // the server does not see it
	b.restart(t, agent, "node-external-ip: "+public)
	b.outside.Run("sh", "-c", "ip route add "+public+" dev eth0 && nft add table ip nat && "+
		"nft add chain ip nat output '{ type nat hook output priority -100; }' && nft add rule ip nat output ip daddr "+public+" dnat to "+agent.IP.String())
	b.create(t, "public", "web", nil)
	hosts.Eventually(t, 2*time.Minute, func() error {
		if got := addressesOf(b.get(t, "public")); !slices.Equal(got, []string{public, agent.IP.String()}) {
			return fmt.Errorf("the addresses are %v", got)
		}
		return nil
	})
	expect(t, "web-", func() (string, error) { return b.outside.Get(url(netip.MustParseAddr(public), 80, "/hostname")) })
}

// testDisabled: when load balancers are disabled, Services lose their addresses and can be deleted.
func (b *balancers) testDisabled(t *testing.T) {
	b.create(t, "left", "web", nil)
	hosts.Eventually(t, time.Minute, func() error {
		if s := b.get(t, "left"); len(s.Finalizers) == 0 || len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("it has %v, %v", s.Finalizers, s.Status)
		}
		return nil
	})
	b.restart(t, b.Servers[0], "disable: [servicelb]")
	hosts.Eventually(t, 2*time.Minute, func() error {
		s, err := b.client.CoreV1().Services("default").Get(t.Context(), "left", metav1.GetOptions{})
		if err == nil && len(s.Finalizers)+len(s.Status.LoadBalancer.Ingress)+len(s.Status.Conditions) > 0 {
			err = fmt.Errorf("it has %v, %v", s.Finalizers, s.Status)
		}
		return err
	})
	b.remove(t, "left")
}
