package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testExpiredAgent: an agent that was off for thirteen months needs no token. A file of --token-file that is gone is no error.
func testExpiredAgent(t *testing.T, server, agent *hosts.Host) {
	for _, name := range []string{"node.crt", "kubelet-client-current.pem"} {
		hosts.Reissue(t, server, agent.Data("node/pki", name), time.Now().AddDate(0, -13, 0), time.Now().AddDate(0, -1, 0))
	}
	began := time.Now()
	s := agent.StartAgent("--token-file=/etc/coracle/gone")
	agent.Coracle("wait", "--timeout", "3m")
	t.Logf("back after %.1f s", time.Since(began).Seconds())
	if log := s.Log(); !strings.Contains(log, "renewed this node's certificate") || strings.Contains(log, "joined the cluster") {
		t.Errorf("it did not renew its certificate:\n%s", log)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
