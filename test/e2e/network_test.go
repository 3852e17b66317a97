package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// A flavour is a kind of network of a cluster.
type flavour struct {
	wire       string
	serverArgs []string
	second     func(first netip.Addr) netip.Addr // the host's address of the second family, if it has one
	policy     string                            // of Services, on IP families
}

var flavours = map[string]flavour{
	"vxlan": {wire: "172.30.0.0/24", policy: "SingleStack"},
	"vxlan, IPv6 only": {
		wire: "fd00:30::/64", policy: "SingleStack",
		serverArgs: []string{"--cluster-cidr=fd00:42::/56", "--service-cidr=fd00:43::/112"},
	},
	"vxlan, dual stack": {
		wire: "172.30.0.0/24", policy: "RequireDualStack", second: sixth,
		serverArgs: []string{"--cluster-cidr=10.42.0.0/16,fd00:42::/56", "--service-cidr=10.43.0.0/16,fd00:43::/112"},
	},
	"host-gw, dual stack": {
		wire: "172.30.0.0/24", policy: "RequireDualStack", second: sixth,
		serverArgs: []string{"--cluster-cidr=10.42.0.0/16,fd00:42::/56", "--service-cidr=10.43.0.0/16,fd00:43::/112", "--flannel-backend=host-gw"},
	},
}

// sixth is the IPv6 address for an IPv4 address, with the same last byte.
func sixth(first netip.Addr) netip.Addr {
	last := first.As4()[3]
	return netip.MustParseAddr(fmt.Sprintf("fd00:30::%x", last))
}

// prepare adds a host's second address and returns the arguments for it.
func (f flavour) prepare(h *hosts.Host) []string {
	if f.second == nil {
		return nil
	}
	second := f.second(h.IP).String()
	h.Run("ip", "-6", "addr", "add", second+"/64", "dev", "eth0", "nodad")
	return []string{"--node-ip=" + h.IP.String() + "," + second}
}

// TestNetwork runs one server and two agents with each kind of network and tests it from all of them.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for name, f := range flavours {
		t.Run(name, func(t *testing.T) {
			slots.Take(t)
			c := hosts.NewCluster(t, hosts.Plan{
				Servers: 1, Agents: 2, Images: true, Net: netip.MustParsePrefix(f.wire), ServerArgs: f.serverArgs, Prepare: f.prepare,
			})
			n := newNetwork(t, c, f)
			t.Run("pod to pod", n.testPods)
			t.Run("largest packet", n.testMTU)
			t.Run("services", n.testServices)
			t.Run("session affinity", n.testAffinity)
			t.Run("dns", n.testDNS)
			t.Run("host network", n.testHostNetwork)
			t.Run("node ports", n.testNodePorts)
			t.Run("external traffic policy Local", n.testLocal)
			if strings.HasPrefix(name, "vxlan") {
				t.Run("forged packets between nodes", n.testForgedVXLAN)
			} else {
				t.Run("a pod that is exempt", n.testExemptPod)
			}
			if len(n.nodes[n.outside.Name]) == 2 || n.outside.IP.Is6() {
				t.Run("spoofed addresses on the bridge", n.testSpoofedPorts)
			}
			t.Run("doctor", n.testDoctor)
			if strings.HasPrefix(name, "vxlan") {
				t.Run("the overlay is removed", n.testOverlayRemoved)
			}
		})
	}
}

// network is a cluster with the pods of nodes.yaml on it.
type network struct {
	*hosts.Cluster
	api     *hosts.Host // where kubectl runs
	outside *hosts.Host // on the wire, but not a node
	// By node: the pods and their addresses, of every family.
	clients        map[string]string
	web, clientIPs map[string][]netip.Addr
	services       map[string][]netip.Addr // by name
	nodes          map[string][]netip.Addr
}

func newNetwork(t *testing.T, c *hosts.Cluster, f flavour) *network {
	t.Helper()
	n := &network{Cluster: c, api: c.Servers[0], services: map[string][]netip.Addr{}, nodes: map[string][]netip.Addr{}}
	n.outside = hosts.New(t, c.Wire, "outside", hosts.Options{})
	f.prepare(n.outside)
	n.api.Apply(manifest(t, "nodes.yaml", "${POLICY}", f.policy))
	for _, d := range []string{"daemonset/web", "daemonset/client", "daemonset/hostnetwork", "deployment/lone"} {
		n.api.Kubectl("rollout", "status", d, "--timeout=3m")
	}
	n.look(t)
	for _, line := range n.lines("get", "services", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.clusterIPs[*]}{"\n"}{end}`) {
		if line[1] != "None" {
			n.services[line[0]] = parse(t, line[1:])
		}
	}
	for _, h := range append(c.Hosts(), n.outside) {
		n.nodes[h.Name] = []netip.Addr{h.IP}
		if f.second != nil {
			n.nodes[h.Name] = append(n.nodes[h.Name], f.second(h.IP))
		}
	}
	if len(n.web) != 3 || len(n.clients) != 3 {
		t.Fatalf("web servers are on %v, clients on %v", n.web, n.clients)
	}
	return n
}

// look finds the nodes of the pods.
func (n *network) look(t *testing.T) {
	t.Helper()
	n.web, n.clientIPs, n.clients = n.podIPs(t, "web"), n.podIPs(t, "client"), map[string]string{}
	for _, line := range n.lines("get", "pods", "-l", "app=client", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{"\n"}{end}`) {
		n.clients[line[0]] = line[1]
	}
}

// podIPs are the addresses of the pods of an app by node.
func (n *network) podIPs(t *testing.T, app string) map[string][]netip.Addr {
	t.Helper()
	ips := map[string][]netip.Addr{}
	for _, line := range n.lines("get", "pods", "-l", "app="+app, "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.status.podIPs[*].ip}{"\n"}{end}`) {
		if len(line) > 1 {
			ips[line[0]] = parse(t, line[1:])
		}
	}
	return ips
}

// lines splits each line of kubectl's output into words.
func (n *network) lines(args ...string) (words [][]string) {
	for line := range strings.Lines(n.api.Kubectl(args...)) {
		words = append(words, strings.Fields(line))
	}
	return words
}

func parse(t *testing.T, texts []string) (ips []netip.Addr) {
	t.Helper()
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		ips = append(ips, ip)
	}
	return ips
}

// in runs a shell command in the client pod of a node.
func (n *network) in(t *testing.T, node, line string) string {
	t.Helper()
	out, err := n.tryIn(node, line)
	if err != nil {
		t.Error(err)
	}
	return out
}

func (n *network) tryIn(node, line string) (string, error) {
	out, err := n.api.TryCoracle("kubectl", "exec", n.clients[node], "--", "sh", "-c", line)
	if err != nil {
		err = fmt.Errorf("on %s: %s: %w", node, line, err)
	}
	return out, err
}

func url(ip netip.Addr, port uint16, path string) string {
	return "http://" + netip.AddrPortFrom(ip, port).String() + path
}

// testPods has every client fetch from the web server of every node; the server must see the client's own address.
func (n *network) testPods(t *testing.T) {
	for from := range n.clients {
		var line strings.Builder
		var want []string
		for _, ips := range n.web {
			for i, ip := range ips {
				fmt.Fprintf(&line, "probe get %s && echo; ", url(ip, 8080, "/clientip"))
				want = append(want, n.clientIPs[from][i].String())
			}
		}
		got := strings.Fields(n.in(t, from, line.String()))
		if len(got) != len(want) {
			t.Errorf("from %s %d of %d web servers answered: %v", from, len(got), len(want), got)
			continue
		}
		for i := range want {
			if ap, err := netip.ParseAddrPort(got[i]); err != nil || ap.Addr().Unmap().String() != want[i] {
				t.Errorf("a server saw %s, the pod on %s has %s", got[i], from, want[i])
			}
		}
	}
}

// testMTU transfers a megabyte between nodes and sends the largest packet that may not be fragmented; no host on the
// way may have fragmented one.
func (n *network) testMTU(t *testing.T) {
	before := n.fragments()
	from, to := "agent-1", "agent-2"
	mtu := strings.TrimSpace(n.in(t, from, "cat /sys/class/net/eth0/mtu"))
	t.Logf("pods have an MTU of %s", mtu)
	want := strings.Fields(n.in(t, to, "sha256sum /www/big"))[0]
	for _, ip := range n.clientIPs[to] {
		if got := n.in(t, from, fmt.Sprintf("busybox wget -qO- %s | sha256sum", url(ip, 8090, "/big"))); !strings.HasPrefix(got, want) {
			t.Errorf("a megabyte from %s came over as %q, not %s", ip, got, want)
		}
		headers := 28
		if ip.Is6() {
			headers = 48
		}
		n.in(t, from, fmt.Sprintf("busybox ping -c1 -W2 -s $((%s - %d)) %s", mtu, headers, ip))
	}
	if after := n.fragments(); after != before {
		t.Errorf("hosts have cut packets; their counters before: %s; after: %s", before, after)
	}
}

// fragments is the number of packets that each host has fragmented.
func (n *network) fragments() string {
	var all strings.Builder
	for _, h := range n.Hosts() {
		fmt.Fprintf(&all, "%s: %s", h.Name, h.Run("sh", "-c",
			`awk '/^Ip:/ && n++ {print "IPv4", $(NF-1)}' /proc/net/snmp; awk '/^Ip6FragCreates/ {print "IPv6", $2}' /proc/net/snmp6`))
	}
	return all.String()
}

// testServices fetches by ClusterIP and by name from every node; the server of every node answers some requests.
func (n *network) testServices(t *testing.T) {
	targets := []string{"http://web/hostname", "http://web.default.svc.cluster.local/hostname"}
	for _, ip := range n.services["web"] {
		targets = append(targets, url(ip, 80, "/hostname"))
	}
	for node := range n.clients {
		// The probability that 45 requests miss one of three servers is 1 in 28 million.
		out := n.in(t, node, fmt.Sprintf("for t in %s; do for i in $(seq 45); do probe get $t || exit 1; echo; done | sort -u | wc -l; done", strings.Join(targets, " ")))
		if want := strings.Repeat("3\n", len(targets)); out != want {
			t.Errorf("on %s %v are answered by so many of the three servers: %q", node, targets, out)
		}
	}
}

func (n *network) testAffinity(t *testing.T) {
	for _, ip := range n.services["sticky"] {
		out := n.in(t, "agent-1", fmt.Sprintf("for i in $(seq 15); do probe get %s || exit 1; echo; done | sort -u | wc -l", url(ip, 80, "/hostname")))
		if strings.TrimSpace(out) != "1" {
			t.Errorf("a client of a sticky Service got answers by %s servers", strings.TrimSpace(out))
		}
	}
}

func (n *network) testDNS(t *testing.T) {
	if err := n.resolve(); err != nil {
		t.Error(err)
	}
}

// resolve looks up names on every node.
func (n *network) resolve() error {
	var wrong []error
	names := map[string][]netip.Addr{
		"web": n.services["web"], "kubernetes.default": n.services["kubernetes"],
		"web-headless": slices.Concat(slices.Collect(maps.Values(n.web))...),
	}
	if n.outside.IP.Is4() {
		names[hosts.ExternalName] = []netip.Addr{netip.MustParseAddr(hosts.ExternalIP)}
	}
	for node := range n.clients {
		for name, want := range names {
			got, err := n.tryIn(node, "probe lookup "+name)
			wrong = append(wrong, err)
			for _, ip := range want {
				if !strings.Contains("\n"+got, "\n"+ip.String()+"\n") {
					wrong = append(wrong, fmt.Errorf("on %s %s is %q, without %s", node, name, got, ip))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// testHostNetwork connects from pods to pods with hostNetwork on all nodes, and from these to pods and Services.
func (n *network) testHostNetwork(t *testing.T) {
	var line, want strings.Builder
	for to := range n.clients {
		for _, ip := range n.nodes[to] {
			fmt.Fprintf(&line, "probe get %s && echo; ", url(ip, 18081, "/hostname"))
			fmt.Fprintln(&want, to)
		}
	}
	for from := range n.clients {
		if got := n.in(t, from, line.String()); got != want.String() {
			t.Errorf("from a pod on %s the hosts answer %q, not %q", from, got, want.String())
		}
	}
	targets := []string{"web.default.svc.cluster.local:80"}
	for _, ip := range slices.Concat(slices.Collect(maps.Values(n.web))...) {
		targets = append(targets, netip.AddrPortFrom(ip, 8080).String())
	}
	for _, pod := range n.lines("get", "pods", "-l", "app=hostnetwork", "-o", "name") {
		loop := fmt.Sprintf("for t in %s; do /agnhost connect $t --timeout=3s || echo not to $t; done", strings.Join(targets, " "))
		if out, err := n.api.TryCoracle("kubectl", "exec", pod[0], "--", "sh", "-c", loop); err != nil || out != "" {
			t.Errorf("from %s on the host's network: %s, %v", pod[0], out, err)
		}
	}
}

func (n *network) testNodePorts(t *testing.T) {
	if err := n.fetchFromOutside(); err != nil {
		t.Error(err)
	}
}

// fetchFromOutside fetches through every node from a host that is not a node.
func (n *network) fetchFromOutside() error {
	var wrong []error
	for node := range n.clients {
		for _, ip := range n.nodes[node] {
			for range 4 { // servers on other nodes answer too
				if out, err := n.outside.Get(url(ip, 30080, "/hostname")); err != nil || !strings.HasPrefix(out, "web-") {
					wrong = append(wrong, fmt.Errorf("NodePort through %s at %s: %q, %v", node, ip, out, err))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// testLocal fetches from a host that is not a node: the node with the pod answers and shows the client's address; the
// others do not answer.
func (n *network) testLocal(t *testing.T) {
	for i, ip := range n.nodes["agent-1"] {
		out, err := n.outside.Get(url(ip, 30081, "/clientip"))
		ap, _ := netip.ParseAddrPort(out)
		if want := n.nodes["outside"][i]; err != nil || ap.Addr().Unmap() != want {
			t.Errorf("the pod saw %q, %v; the client has %s", out, err, want)
		}
	}
	began := time.Now()
	if out, err := n.outside.Get(url(n.nodes["agent-2"][0], 30081, "/clientip")); err == nil {
		t.Errorf("a node without the pod answers: %s", out)
	}
	t.Logf("a node without the pod refuses after %s", time.Since(began).Round(time.Millisecond))
}
