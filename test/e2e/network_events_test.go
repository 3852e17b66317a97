package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestNetworkEvents causes failures on nodes and checks their effect on the pods of other nodes.
func TestNetworkEvents(t *testing.T) {
	slots.Take(t)
	f := flavours["vxlan"]
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 2, Images: true, Net: netip.MustParsePrefix(f.wire)})
	n := newNetwork(t, c, f)
	t.Run("the server is cut off", n.testServerAway)
	t.Run("a slow and lossy network", n.testBadCables)
	t.Run("a node is rebooted", n.testReboot)
	t.Run("a node is installed anew", n.testReinstalled)
	t.Run("a node is removed", n.testRemoved)
}

// testServerAway: pods on agents do not need a server.
func (n *network) testServerAway(t *testing.T) {
	agent := n.Agents[1].For(t)
	id := strings.TrimSpace(agent.Coracle("crictl", "ps", "--name", "busybox", "-q"))
	n.Links.Isolate(n.Servers[0])
	defer n.Links.Heal()
	for line, want := range map[string]string{
		"probe get " + url(n.web["agent-1"][0], 8080, "/hostname"):       "web-",
		"probe get " + url(n.services["lone-local"][0], 80, "/hostname"): "lone-",
		"probe get http://lone-local/hostname":                           "lone-",
		"probe lookup web":                                               n.services["web"][0].String(),
		"probe lookup " + hosts.ExternalName:                             hosts.ExternalIP,
	} {
		var out string
		var err error
		for range 3 { // on a busy machine a packet or two may be lost
			if out, err = agent.TryCoracle("crictl", "exec", id, "sh", "-c", line); err == nil && strings.Contains(out, want) {
				break
			}
		}
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("without a server: %s: %q, %v", line, out, err)
		}
	}
}

// testBadCables: a distant node is Ready, and logs and exec work.
func (n *network) testBadCables(t *testing.T) {
	far := n.Agents[1]
	n.Links.Delay(far, 80*time.Millisecond)
	n.Links.Drop(2, far, n.Servers[0])
	defer n.Links.Heal()
	n.For(t).AwaitHealthy(time.Now(), 3*time.Minute)
	if out := n.in(t, far.Name, "echo from afar"); out != "from afar\n" {
		t.Errorf("exec printed %q", out)
	}
	n.api.Run("timeout", "30", binary, "kubectl", "logs", n.clients[far.Name])
	big := url(n.clientIPs["agent-1"][0], 8090, "/big")
	if out := n.in(t, far.Name, fmt.Sprintf("busybox wget -qO- %s | wc -c", big)); out != "1048576\n" {
		t.Errorf("a megabyte from afar is %q", out)
	}
}

// testReboot: after a reboot the node's pods are back, and can be reached from other nodes and reach them.
func (n *network) testReboot(t *testing.T) {
	c := n.For(t)
	h := c.Agents[1]
	h.Kill()
	began := time.Now()
	c.Boot(h)
	c.AwaitHealthy(began, 3*time.Minute)
	n.awaitWhole(t)
	t.Logf("all pods reach each other %s after the boot", time.Since(began).Round(100*time.Millisecond))
	hosts.Eventually(t, time.Minute, n.resolve)
}

// testReinstalled: the machine has lost everything except its name and address.
func (n *network) testReinstalled(t *testing.T) {
	c := n.For(t)
	h := c.Agents[1]
	h.Kill()
	h.Wipe()
	n.api.Kubectl("delete", "node", h.Name)
	h.Boot()
	c.Provision(h)
	began := time.Now()
	c.Start(h)
	c.AwaitHealthy(began, 3*time.Minute)
	n.awaitWhole(t)
	t.Logf("all pods reach each other %s after the start", time.Since(began).Round(100*time.Millisecond))
	hosts.Eventually(t, time.Minute, n.resolve)
	hosts.Eventually(t, time.Minute, n.fetchFromOutside)
}

// testRemoved: other nodes remove their routes to the node's pods, also a node that is stopped then.
func (n *network) testRemoved(t *testing.T) {
	c := n.For(t)
	gone, asleep := c.Agents[1], c.Agents[0]
	gone.Kill()
	if err := c.Running(asleep).Stop(); err != nil {
		t.Fatalf("stopping coracle on %s: %v", asleep.Name, err)
	}
	subnet := strings.TrimSpace(n.api.Kubectl("get", "node", gone.Name, "-o", "jsonpath={.spec.podCIDR}"))
	n.api.Kubectl("delete", "node", gone.Name)
	forgotten := func(h *hosts.Host) {
		t.Helper()
		hosts.Eventually(t, 2*time.Minute, func() error {
			routes := h.Run("ip", "route")
			if strings.Contains(routes, subnet) {
				return fmt.Errorf("%s still has a route to %s:\n%s", h.Name, subnet, routes)
			}
			return nil
		})
	}
	forgotten(n.Servers[0])
	if routes := asleep.Run("ip", "route"); !strings.Contains(routes, subnet) {
		t.Errorf("on %s there is nothing to forget:\n%s", asleep.Name, routes)
	}
	c.Start(asleep)
	forgotten(asleep)
}

// awaitWhole waits until the pods of nodes.yaml run on all nodes and every client gets answers from every web server.
func (n *network) awaitWhole(t *testing.T) {
	t.Helper()
	hosts.Eventually(t, 3*time.Minute, func() error {
		n.look(t)
		for from, pod := range n.clients {
			for to, ips := range n.web {
				if out, err := n.api.TryCoracle("kubectl", "exec", pod, "--", "probe", "get", url(ips[0], 8080, "/hostname")); err != nil {
					return fmt.Errorf("from %s to %s: %s, %w", from, to, out, err)
				}
			}
		}
		if len(n.web) != 3 || len(n.clients) != 3 {
			return fmt.Errorf("web servers are on %v, clients on %v", n.web, n.clients)
		}
		return nil
	})
}

// testOverlayRemoved: a node whose overlay was removed, as the kernel does with the interface under it, reaches pods of other nodes again.
func (n *network) testOverlayRemoved(t *testing.T) {
	node := n.Agents[0]
	var lines []string
	for at, ips := range n.web {
		for _, ip := range ips {
			if at != node.Name {
				lines = append(lines, "probe get "+url(ip, 8080, "/hostname"))
			}
		}
	}
	others := strings.Join(lines, " && ")
	n.in(t, node.Name, others)
	began := time.Now()
	node.For(t).Run("sh", "-c", "ls /sys/class/net | grep ^flannel | xargs -n 1 ip link del")
	hosts.Eventually(t, time.Minute, func() error {
		_, err := n.tryIn(node.Name, others)
		return err
	})
	t.Logf("pods reach those of other nodes %s after the overlay was removed", time.Since(began).Round(100*time.Millisecond))
}
