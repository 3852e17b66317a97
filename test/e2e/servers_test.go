package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestServersOverIPv6 makes a cluster of three servers on hosts without IPv4, and one of them dies.
func TestServersOverIPv6(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{
		Servers: 3, Agents: 1, Images: true, Net: netip.MustParsePrefix("fd00:30::/64"),
		ServerArgs: []string{"--cluster-cidr=fd00:42::/56", "--service-cidr=fd00:43::/112"},
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
}
