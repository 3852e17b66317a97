package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// sixthAPI is the IPv6 address of the API.
var sixthAPI = netip.MustParseAddr("fd00:30::c8")

// TestServersOverIPv6 makes a cluster of three servers on hosts without IPv4, which the last of them and an agent join at the address of the API, and one of
// them dies.
func TestServersOverIPv6(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{
		Servers: 3, Agents: 1, Images: true, Net: netip.MustParsePrefix("fd00:30::/64"),
		ServerArgs: []string{"--cluster-cidr=fd00:42::/56", "--service-cidr=fd00:43::/112", "--vip=" + sixthAPI.String()},
		Join: func(h, first *hosts.Host) string {
			if h.Name == "server-2" {
				return first.IP.String()
			}
			return sixthAPI.String()
		},
	})
	first := c.Servers[0]
	first.Apply(manifest(t, "families.yaml", "${POLICY}", "SingleStack"))
	first.Kubectl("wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=3m")
	ip := first.Kubectl("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
	reachable(t, first, netip.MustParseAddr(ip))

	c.Links.Isolate(first)
	client, err := c.Client(c.Agents[0], hosts.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	hosts.Eventually(t, 2*time.Minute, func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/api/v1/namespaces/default").Timeout(3 * time.Second).DoRaw(t.Context())
		return err
	})
	t.Logf("the agent's balancer reaches another server %s after the first was cut off", time.Since(began).Round(100*time.Millisecond))
	c.Links.Heal()
	c.AwaitHealthy(time.Now(), 3*time.Minute)
	testSixthAPI(t, c)
}

// testSixthAPI: another server has the IPv6 address of the API when its server is cut off, and neighbours send to it at once.
func testSixthAPI(t *testing.T, c *hosts.Cluster) {
	if out := c.Servers[1].Coracle("token", "join-command"); !strings.Contains(out, "--server https://[fd00:30::c8]:6443 ") {
		t.Errorf("the command that joins a machine is %s", out)
	}
	answers := func() error { // with a new connection; its certificate must be valid for the address
		config, err := c.Config(c.Agents[0], netip.AddrPortFrom(sixthAPI, 6443).String())
		if err != nil {
			return err
		}
		config.Timeout = 300 * time.Millisecond
		client, err := kubernetes.NewForConfig(config)
		if err == nil {
			_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		}
		return err
	}
	at := awaitCarrier(t, c.Servers, sixthAPI, 10*time.Second)
	hosts.Eventually(t, 10*time.Second, answers)
	var servers []string
	for _, h := range c.Servers {
		servers = append(servers, netip.AddrPortFrom(h.IP, 6443).String())
	}
	slices.Sort(servers)
	for _, h := range []*hosts.Host{c.Servers[2], c.Agents[0]} { // which have joined there
		hosts.Eventually(t, 10*time.Second, func() error {
			kept, err := state.ReadAPIServers(h.Data("node", "servers.json"))
			if err == nil && (!slices.Equal(kept.Servers, servers) || len(kept.Former) > 0) {
				err = fmt.Errorf("%s keeps %+v, not %v", h.Name, kept, servers)
			}
			return err
		})
	}
	c.Links.Isolate(at)
	took := unreachable(t, time.Minute, answers)
	t.Logf("the API answers at %s %.2f s after its server was cut off", sixthAPI, took.Seconds())
	if took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	testStartWithoutAPIAddress(t, c, c.Agents[0])
	c.Links.Heal()
	c.AwaitHealthy(time.Now(), 3*time.Minute)
}

// testStartWithoutAPIAddress: an agent that has joined at the address of the API starts by what it keeps when it reaches the servers only.
func testStartWithoutAPIAddress(t *testing.T, c *hosts.Cluster, agent *hosts.Host) {
	agent.Run("ip", "route", "add", "unreachable", sixthAPI.String())
	defer agent.Run("ip", "route", "delete", "unreachable", sixthAPI.String())
	if conn, err := agent.Dial(t.Context(), "tcp", netip.AddrPortFrom(sixthAPI, 6443).String()); err == nil {
		conn.Close()
		t.Errorf("%s is still reached", sixthAPI)
	}
	if err := c.Running(agent).Stop(); err != nil {
		t.Fatal(err)
	}
	client, err := c.Client(agent, hosts.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.Start(agent)
	hosts.Eventually(t, time.Minute, func() error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(3 * time.Second).DoRaw(t.Context())
		return err
	})
	t.Logf("without that address the agent reaches the API %.1f s after its start", time.Since(began).Seconds())
}
