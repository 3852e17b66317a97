package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// policies is a cluster of two nodes with the pods of netpol.yaml.
type policies struct {
	*hosts.Cluster
	api  *hosts.Host
	pods map[string]policyPod // by namespace and name
}

// policyPod is a pod whose network namespace the test can enter.
type policyPod struct {
	pid int
	ips []string
}

// TestNetworkPolicy tests network policies with packets, over IPv4 and IPv6.
func TestNetworkPolicy(t *testing.T) {
	slots.Take(t)
	f := flavours["vxlan, dual stack"]
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1, Images: true, ServerArgs: f.serverArgs, Prepare: f.prepare})
	p := &policies{Cluster: c, api: c.Servers[0], pods: map[string]policyPod{}}
	if out := p.tables(t); strings.Contains(out, "coracle-policy") {
		t.Errorf("there is a table before there is a policy:\n%s", out)
	}
	p.api.Apply(manifest(t, "netpol.yaml"))
	p.api.Kubectl("wait", "pods", "--all", "-A", "--for=condition=Ready", "--timeout=3m")
	for _, name := range []string{"x/a", "x/b", "z/c", "z/d"} {
		p.look(t, name)
	}
	for _, step := range policySteps {
		t.Run(step.name, func(t *testing.T) { p.play(t, step) })
	}
	t.Run("Service", p.testService)
	t.Run("hosts", p.testHosts)
	t.Run("link-local", p.testLinkLocal)
	t.Run("labels change", p.testLabels)
	t.Run("existing connection", p.testExisting)
	t.Run("first packet", p.testFirstPacket)
	t.Run("raw frames", p.testRawFrames)
	t.Run("flushed", p.testFlushed)
	t.Run("restart", p.testRestart)
	t.Run("the last policy goes", p.testLast)
	t.Run("reset", p.testReset)
	t.Run("disabled", p.testDisabled)
}

// policyStep has one or several policies, the target, and the pods that must reach it or must not.
type policyStep struct {
	name, policy string
	reach        []reached
}

type reached struct {
	target    string // NAMESPACE/POD:PORT, of TCP, or with /udp
	from, not string // names of pods as in p.pods
}

// policy is a policy of a namespace with the given lines as its spec.
func policyOf(namespace, name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec: %s\n---\n", name, namespace, spec)
}

var policySteps = []policyStep{
	{"none", "", []reached{{"x/a:80", "x/b z/c z/d", ""}, {"z/d:80/udp", "x/a x/b z/c", ""}, {"x/b:8080", "x/a z/c z/d", ""}}},
	{"default deny of ingress", policyOf("x", "p", `{podSelector: {}, policyTypes: [Ingress]}`),
		[]reached{{"x/a:80", "x/a", "x/b z/c z/d"}, {"x/b:80", "", "x/a z/c z/d"}, {"x/b:80/udp", "", "x/a z/c z/d"}, {"z/c:80", "x/a x/b z/d", ""}}},
	{"default deny of egress", policyOf("z", "p", `{podSelector: {}, policyTypes: [Egress]}`),
		[]reached{{"x/a:80", "x/b", "z/c z/d"}, {"z/c:80", "x/a x/b", "z/d"}, {"x/b:80/udp", "x/a", "z/c z/d"}}},
	{"selectors", policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{podSelector: {matchLabels: {app: b}}}]}]}`),
		[]reached{{"x/a:80", "x/b", "z/c z/d"}, {"x/b:80", "x/a z/c z/d", ""}}},
	{"namespaces", policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}}]}]}`),
		[]reached{{"x/a:80", "z/c z/d", "x/b"}}},
	{"namespaces and pods", policyOf("x", "p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}, podSelector: {matchLabels: {app: d}}}]}]}`),
		[]reached{{"x/a:80", "z/d", "x/b z/c"}, {"x/b:81", "z/d", "x/a z/c"}}},
	{"namespaces or pods, of two policies", policyOf("x", "p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: none}}}, {podSelector: {matchLabels: {app: b}}}]}]}`) +
		policyOf("x", "q", `{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [b]}]}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}, podSelector: {matchExpressions: [{key: app, operator: In, values: [c]}]}}]}]}`),
		[]reached{{"x/a:80", "x/b z/c", "z/d"}, {"x/b:80", "", "x/a z/c z/d"}}},
	{"ports", policyOf("x", "p", `{podSelector: {}, ingress: [{ports: [{port: 81}, {protocol: UDP, port: 80}]}]}`),
		[]reached{{"x/a:81", "x/b z/c z/d", ""}, {"x/a:80", "", "x/b z/c z/d"}, {"x/b:80/udp", "x/a z/c z/d", ""}}},
	{"a range of ports", policyOf("z", "p", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80, endPort: 81}]}]}`),
		[]reached{{"x/a:80", "z/c z/d", ""}, {"x/a:81", "z/c z/d", ""}, {"x/b:8080", "x/a", "z/c z/d"}, {"x/a:80/udp", "x/b", "z/c z/d"}}},
	{"named ports", policyOf("x", "p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}}], ports: [{port: web}]}]}`),
		[]reached{{"x/a:80", "z/c z/d", "x/b"}, {"x/b:8080", "z/c z/d", "x/a"}, {"x/b:80", "", "x/a z/c z/d"}, {"x/a:8080", "", "x/b z/c z/d"}}},
	{"named ports out", policyOf("z", "p", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web}]}]}`),
		[]reached{{"x/a:80", "z/c z/d", ""}, {"x/b:8080", "z/c z/d", ""}, {"x/b:80", "x/a", "z/c z/d"}}},
	{"blocks", policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16, except: [${z/d}/32]}}, {ipBlock: {cidr: "fd00:42::/56", except: ["${z/d 6}/128"]}}]}]}`),
		[]reached{{"x/a:80", "x/b z/c", "z/d"}}},
	{"blocks out", policyOf("z", "p", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: ${x/a}/32}}, {ipBlock: {cidr: "${x/a 6}/128"}}], ports: [{port: 80}]}]}`),
		[]reached{{"x/a:80", "z/c z/d", ""}, {"x/a:81", "x/b", "z/c z/d"}, {"x/b:80", "x/a", "z/c z/d"}}},
	{"both directions", policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}]}], egress: [{to: [{namespaceSelector: {matchLabels: {team: z}}}]}]}`),
		[]reached{{"x/a:80", "x/b", "z/c z/d"}, {"z/d:80", "x/a x/b", ""}, {"x/b:80", "z/c z/d", "x/a"}}},
}

// play applies a step's policies and checks the connections.
func (p *policies) play(t *testing.T, step policyStep) {
	p.with(t, step.policy)
	for _, r := range step.reach {
		p.expect(t, r)
	}
}

// with applies policies until the test ends.
func (p *policies) with(t *testing.T, policy string) {
	t.Helper()
	if policy == "" {
		return
	}
	for name, pod := range p.pods {
		policy = strings.NewReplacer("${"+name+"}", pod.ips[0], "${"+name+" 6}", pod.ips[1]).Replace(policy)
	}
	api := p.api.For(t)
	api.Apply(policy)
	t.Cleanup(func() {
		api.Kubectl("delete", "networkpolicies", "--all", "-A")
		p.awaitNone(t)
	})
}

// awaitNone waits until no policy is in force, so that the next subtest does not take these for its own.
func (p *policies) awaitNone(t *testing.T) {
	t.Helper()
	hosts.Eventually(t, 30*time.Second, func() error {
		if out := p.tables(t); strings.Contains(out, "coracle-policy") {
			return fmt.Errorf("the table is still there:\n%s", out)
		}
		return nil
	})
}

// expect fails unless the check succeeds before the timeout, within which every node gets a change.
func (p *policies) expect(t *testing.T, r reached) {
	t.Helper()
	target, proto, _ := strings.Cut(r.target, "/udp")
	proto = map[bool]string{true: "udp", false: "tcp"}[target != r.target || proto != ""]
	target, port, _ := strings.Cut(target, ":")
	hosts.Eventually(t, 30*time.Second, func() error {
		for _, ip := range p.pods[target].ips {
			address := net.JoinHostPort(ip, port)
			for name := range p.pods {
				should, shouldNot := slices.Contains(strings.Fields(r.from), name), slices.Contains(strings.Fields(r.not), name)
				if !should && !shouldNot {
					continue
				}
				err := p.pods[name].dial(proto, address)
				if should && err != nil {
					return fmt.Errorf("%s does not reach %s: %w", name, r.target, err)
				}
				if shouldNot && err == nil {
					return fmt.Errorf("%s reaches %s at %s", name, r.target, address)
				}
			}
		}
		return nil
	})
}

// look finds a pod's addresses, and one of its processes.
func (p *policies) look(t *testing.T, name string) {
	t.Helper()
	namespace, pod, _ := strings.Cut(name, "/")
	words := strings.Fields(p.api.Kubectl("get", "pod", "-n", namespace, pod, "-o", "jsonpath={.metadata.uid} {.status.podIPs[*].ip}"))
	if len(words) != 3 {
		t.Fatalf("pod %s is %v", name, words)
	}
	p.pods[name] = policyPod{pid: hosts.PodProcess(t, words[0]), ips: words[1:]}
}

// dial connects to an address from a pod. For UDP it waits for an answer.
func (p policyPod) dial(proto, address string) error {
	return hosts.On(p.pid, func() error {
		conn, err := net.DialTimeout(proto, address, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if proto == "tcp" {
			return nil
		}
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 64))
		return err
	})
}

// tables are the nft tables of all nodes.
func (p *policies) tables(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, h := range p.Hosts() {
		out.WriteString(h.Run("nft", "list", "tables"))
	}
	return out.String()
}

// testService: policies apply to the pods behind a Service; a pod always reaches itself.
func (p *policies) testService(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: b}}}]}]}`))
	ips := strings.Fields(p.api.Kubectl("get", "service", "-n", "x", "a", "-o", "jsonpath={.spec.clusterIPs[*]}"))
	hosts.Eventually(t, 30*time.Second, func() error {
		for _, ip := range ips {
			address := net.JoinHostPort(ip, "8000")
			for _, name := range []string{"x/b", "x/a"} {
				if err := p.pods[name].dial("tcp", address); err != nil {
					return fmt.Errorf("%s does not reach Service a at %s: %w", name, address, err)
				}
			}
			for _, name := range []string{"z/c", "z/d"} {
				if p.pods[name].dial("tcp", address) == nil {
					return fmt.Errorf("%s reaches Service a at %s", name, address)
				}
			}
		}
		return nil
	})
}

// testHosts: a node reaches its own pods whatever their policies; another node needs a rule.
func (p *policies) testHosts(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	dial := func(h *hosts.Host, name string) error {
		for _, ip := range p.pods[name].ips {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			conn, err := h.Dial(ctx, "tcp", net.JoinHostPort(ip, "80"))
			cancel()
			if err != nil {
				return err
			}
			conn.Close()
		}
		return nil
	}
	server, agent := p.Servers[0], p.Agents[0]
	hosts.Eventually(t, 30*time.Second, func() error {
		if err := errors.Join(dial(server, "x/a"), dial(agent, "x/b")); err != nil {
			return fmt.Errorf("a node does not reach its pod: %w", err)
		}
		if dial(server, "x/b") == nil || dial(agent, "x/a") == nil {
			return errors.New("a node reaches an isolated pod of another node")
		}
		return nil
	})
	p.api.For(t).Kubectl("wait", "-n", "x", "pods", "--all", "--for=condition=Ready", "--timeout=1m") // probes succeed
}

// testLinkLocal: pods of one node cannot use link-local addresses to bypass policies.
func (p *policies) testLinkLocal(t *testing.T) {
	var address string
	err := hosts.On(p.pods["x/a"].pid, func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := eth0.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				address = "[" + n.IP.String() + "%eth0]:80"
			}
		}
		return err
	})
	if err != nil || address == "" {
		t.Fatalf("a pod has no link-local address (%v): without one this proves nothing", err)
	}
	hosts.Eventually(t, 30*time.Second, func() error { // the policies of the previous test may still be in force
		return p.pods["z/c"].dial("tcp", address)
	})
	p.with(t, policyOf("x", "p", `{podSelector: {}}`))
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	if p.pods["z/c"].dial("tcp", address) == nil {
		t.Errorf("%s is reached", address)
	}
}

// testLabels: selectors follow changes of labels of pods and namespaces.
func (p *policies) testLabels(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: new}}}, {podSelector: {matchLabels: {app: new}}}]}]}`))
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	api := p.api.For(t)
	api.Kubectl("label", "namespace", "z", "team=new", "--overwrite")
	p.expect(t, reached{"x/a:80", "z/c z/d", "x/b"})
	api.Kubectl("label", "namespace", "z", "team=z", "--overwrite")
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	api.Kubectl("label", "pod", "-n", "x", "b", "app=new", "--overwrite")
	p.expect(t, reached{"x/a:80", "x/b", "z/c z/d"})
	api.Kubectl("label", "pod", "-n", "x", "b", "app=b", "--overwrite")
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	api.Kubectl("label", "pod", "-n", "x", "a", "app=free", "--overwrite")
	p.expect(t, reached{"x/a:80", "x/b z/c z/d", ""})
	api.Kubectl("label", "pod", "-n", "x", "a", "app=a", "--overwrite")
}

// testExisting: a change of policies ends connections that it forbids, and no others.
func (p *policies) testExisting(t *testing.T) {
	for _, ip := range p.pods["x/a"].ips {
		var conn net.Conn
		hosts.Eventually(t, 30*time.Second, func() error { // the policies of the previous test may still be in force
			return hosts.On(p.pods["z/d"].pid, func() (err error) {
				conn, err = net.DialTimeout("tcp", net.JoinHostPort(ip, "8090"), time.Second)
				return err
			})
		})
		defer conn.Close()
		ask := func() error {
			if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
				return err
			}
			if _, err := conn.Write([]byte("GET /hostname HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
				return err
			}
			_, err := conn.Read(make([]byte, 4096))
			return err
		}
		t.Run(ip, func(t *testing.T) {
			p.with(t, policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}}]}]}`))
			p.expect(t, reached{"x/a:80", "z/d", "x/b"})
			if err := ask(); err != nil {
				t.Fatalf("an allowed connection broke: %v", err)
			}
			p.with(t, policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}`))
			p.expect(t, reached{"x/a:80", "", "z/d"})
			began := time.Now()
			if err := ask(); err == nil {
				t.Error("the connection still works")
			} else if took := time.Since(began); took > 1900*time.Millisecond { // the deadline is two seconds
				t.Errorf("the connection ended after %s: %v", took, err)
			}
		})
	}
}

// testFlushed: when a program flushes all rules, as firewalls do when they start, policies are restored soon.
func (p *policies) testFlushed(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {}}`))
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
	p.Servers[0].Run("nft", "delete table inet coracle-policy")
	p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
}

// testRestart: policies stay in force while the node process dies and starts again, and can be changed afterwards.
func (p *policies) testRestart(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{podSelector: {matchLabels: {app: b}}}]}]}`))
	p.expect(t, reached{"x/a:80", "x/b", "z/c z/d"})
	ctx, stop := context.WithCancel(t.Context())
	leaked := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			for _, ip := range p.pods["x/a"].ips {
				if p.pods["z/c"].dial("tcp", net.JoinHostPort(ip, "80")) == nil {
					n++
				}
			}
			time.Sleep(20 * time.Millisecond) // leaves the processor to others
		}
		leaked <- n
	}()
	server := p.Servers[0]
	pid, err := p.Running(server).ChildPID(state.Node)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.expect(t, reached{"x/a:80", "x/b", "z/c z/d"})
	waitReady(t, server)
	p.expect(t, reached{"x/a:80", "x/b", "z/c z/d"})
	stop()
	if n := <-leaked; n > 0 {
		t.Errorf("%d connections got through", n)
	}
	p.with(t, policyOf("x", "p", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}}]}]}`))
	p.expect(t, reached{"x/a:80", "z/c z/d", "x/b"})
}

// testLast: when the last policy is deleted, so is the table.
func (p *policies) testLast(t *testing.T) {
	t.Run("policy", func(t *testing.T) {
		p.with(t, policyOf("x", "p", `{podSelector: {}}`))
		p.expect(t, reached{"x/a:80", "", "x/b z/c z/d"})
		p.expect(t, reached{"x/b:80", "", "x/a z/c z/d"}) // on the other node
		if out := p.tables(t); strings.Count(out, "inet coracle-policy") != 2 {
			t.Errorf("the tables are\n%s", out)
		}
	})
	p.awaitNone(t)
	p.expect(t, reached{"x/a:80", "x/b z/c z/d", ""})
}

// testReset: a reset of a node removes policies that are in force.
func (p *policies) testReset(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {}}`))
	p.expect(t, reached{"x/b:80", "", "x/a z/c z/d"})
	agent := p.Agents[0]
	if err := p.Running(agent).Stop(); err != nil {
		t.Error(err)
	}
	if out := agent.Run("nft", "list", "tables"); !strings.Contains(out, "coracle-policy") {
		t.Errorf("policies are not in force while coracle is stopped:\n%s", out)
	}
	agent.Coracle("reset", "--yes")
	if out := agent.Run("nft", "list", "tables"); strings.Contains(out, "coracle-policy") {
		t.Errorf("reset left the table:\n%s", out)
	}
}

// testDisabled: with --disable=network-policy existing policies have no effect.
func (p *policies) testDisabled(t *testing.T) {
	p.with(t, policyOf("x", "p", `{podSelector: {}}`))
	p.expect(t, reached{"x/a:80", "", "z/c"})
	server := p.Servers[0]
	if err := p.Running(server).Stop(); err != nil {
		t.Error(err)
	}
	p.expect(t, reached{"x/a:80", "", "z/c"})
	server.Run("sh", "-c", "echo 'disable: [network-policy]' >> /etc/coracle/config.yaml")
	p.Start(server)
	waitReady(t, server)
	if out := server.Run("nft", "list", "tables"); strings.Contains(out, "coracle-policy") {
		t.Errorf("the table is still there:\n%s", out)
	}
	p.expect(t, reached{"x/a:80", "z/c", ""})
}
