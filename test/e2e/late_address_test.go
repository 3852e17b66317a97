package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

const internalIP = `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`

// testLateAddress starts a server on a host without an address, as after a power cut, when the router boots slower, gives it one and then
// another.
func testLateAddress(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.LoseIP()
	s = h.Start()
	waitReady(t, h)
	if got := h.Kubectl("get", "node", "solo", "-o", internalIP); got != "192.0.0.8" {
		t.Errorf("without an address the node is at %s", got)
	}
	before := startSleepers(t, h)
	pids := sleeperProcesses(t, h)
	h.Apply(manifest(t, "moves.yaml"))
	h.Kubectl("rollout", "status", "daemonset/web", "--timeout=3m")
	h.Apply("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: NodePort, selector: {app: web}, ports: [{port: 8080, nodePort: 30123}]}\n")
	for _, ip := range []string{"172.30.0.78", "172.30.0.79"} {
		began := time.Now()
		h.SetIP(netip.MustParseAddr(ip))
		hosts.Eventually(t, time.Minute, func() error { return connects(h, ip, 30123) })
		t.Logf("NodePorts answer at %s after %.1f s", ip, time.Since(began).Seconds())
		hosts.Eventually(t, time.Minute, func() error {
			got, err := h.TryCoracle("kubectl", "get", "node", "solo", "-o", internalIP)
			if err == nil && strings.TrimSpace(got) != ip {
				err = fmt.Errorf("the node is at %s", got)
			}
			return err
		})
		took := time.Since(began)
		t.Logf("the Node has address %s after %.1f s", ip, took.Seconds())
		if took > lateAddress {
			t.Errorf("that took longer than %s", lateAddress)
		}
		waitReady(t, h)
		hosts.Eventually(t, time.Minute, func() error {
			return contains("the API's endpoint", h.Kubectl("get", "endpointslice", "kubernetes", "-o", "jsonpath={.endpoints}"), ip)
		})
		h.Coracle("kubectl", "--server", "https://"+ip+":6443", "get", "--raw", "/readyz")
	}
	if got := containers(h, "-l", "app=sleepers"); got != before {
		t.Errorf("containers before:\n%s\nafter:\n%s", before, got)
	}
	if got := h.Run("pgrep", "-x", "sleep"); got != pids {
		t.Errorf("the pods' processes changed: %q, then %q", pids, got)
	}
	h.Kubectl("delete", "service/web", "daemonset/web")
	return s
}

// lateAddress is how long a machine may take to use an address that it has got, twice the time on a machine that does nothing else.
const lateAddress = 20 * time.Second

// testRunningAgentMoves gives a running agent another address. The server takes it for the node's because it sees it as the source of the
// node's connections.
func testRunningAgentMoves(t *testing.T, c *hosts.Cluster) {
	server, agent := c.Servers[0], c.Agents[0]
	former, to := agent.IP, netip.MustParseAddr("172.30.0.91")
	for _, ip := range []netip.Addr{to, former} {
		began := time.Now()
		agent.SetIP(ip)
		hosts.Eventually(t, time.Minute, func() error {
			got := server.Kubectl("get", "node", agent.Name, "-o", internalIP)
			if got != ip.String() {
				return fmt.Errorf("%s is at %s", agent.Name, got)
			}
			return nil
		})
		took := time.Since(began)
		t.Logf("%s is at %s after %.1f s", agent.Name, ip, took.Seconds())
		if took > lateAddress {
			t.Errorf("that took longer than %s", lateAddress)
		}
		agent.Coracle("wait", "--timeout", "1m")
	}
}

// connects returns an error unless a port of a host can be connected to, from the host.
func connects(h *hosts.Host, ip string, port int) error {
	_, err := h.Try("timeout", "2", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", ip, port))
	return err
}
