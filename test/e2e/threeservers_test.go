package e2e

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestThreeServers has tests that need three servers with the default settings. Each leaves all of them healthy.
func TestThreeServers(t *testing.T) {
	slots.Take(t)
	var certificates acme
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Images: true, ServerArgs: append([]string{"--vip=" + apiAddress.String(), gatewayAddresses}, acmeArgs...),
		Prepare: certificates.withAuthority(t, withPassphrase(t))})
	certificates.start(t, c)
	if out := c.Servers[2].Coracle("secrets-encrypt", "status"); !strings.Contains(out, "Keys Sealed With: cluster CA, passphrase") {
		t.Error(out)
	}
	for _, part := range []struct {
		name string
		test func(*testing.T, *hosts.Cluster)
	}{
		{"the address of the API", testVIP},
		{"the address of a Gateway", testGatewayAddress},
		{"check cis", testBenchmarkOnAll},
		{"keys of Secrets change", testSecretsKeys},
		{"authorities are replaced", testAuthorities},
		{"certificates by ACME", func(t *testing.T, _ *hosts.Cluster) { certificates.testIssued(t) }},
		{"a Gateway's certificate by ACME", func(t *testing.T, _ *hosts.Cluster) { certificates.testGateway(t) }},
		{"who asks for a certificate is killed", func(t *testing.T, _ *hosts.Cluster) { certificates.testKilled(t) }},
		{"the lead is lost", testLostLead},
		{"certificates are renewed", func(t *testing.T, _ *hosts.Cluster) { certificates.testRenewed(t) }},
		{"a chart's leader is cut off", testChartsLeader},
		{"a stolen machine is removed", testRevoked},
		{"a server is removed", testRemoveServer},
		{"quorum is reset", testResetQuorum},
		{"a server boots alone", func(t *testing.T, c *hosts.Cluster) { testOffline(t, c, c.Servers[2], c.Servers[:2]) }},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, c) }) {
			return // the next test would find an unhealthy cluster
		}
	}
}
