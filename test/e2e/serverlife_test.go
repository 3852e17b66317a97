package e2e

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestServerLife restarts a server with the default settings in several ways. Each part returns the server that it has
// started.
func TestServerLife(t *testing.T) {
	slots.Take(t)
	h, s := newFreshCluster(t)
	first := s
	for _, part := range []struct {
		name string
		test func(*testing.T, *hosts.Host, *hosts.Server) *hosts.Server
	}{
		{"a restart keeps pods", testRestartKeepsPods},
		{"no error is logged", func(t *testing.T, _ *hosts.Host, s *hosts.Server) *hosts.Server {
			for _, line := range append(first.Errors(), s.Errors()...) {
				t.Error(line)
			}
			for line := range strings.Lines(first.Log() + s.Log()) { // what the API server refuses before there are roles
				if strings.Contains(line, " forbidden") && !strings.Contains(line, "INFO  still waiting: ") {
					t.Error(line)
				}
			}
			return s
		}},
		{"a half hangs", testHalfHangs},
		{"another external address", testNewExternalIP},
		{"classes of Ingresses", testIngressClasses},
		{"a cluster of an earlier version", testEarlierCluster},
		{"a passphrase", testPassphrase},
		{"the host reboots", testHostReboot},
		{"another address", testNewAddress},
		{"an address after the start", testLateAddress},
		{"lost data", testStartAfterLostData},
		{"reset", testStartAfterReset},
		{"another hostname", testNewHostname},
	} {
		if !t.Run(part.name, func(t *testing.T) { s = part.test(t, h, s) }) {
			return // the next part would find a server that does not run
		}
		h.Kubectl("delete", "deployment", "sleepers", "--cascade=foreground", "--ignore-not-found")
	}
}
