package e2e

import (
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// TestTwentyJoinsAtOnce starts twenty agents at the same moment: all get in, and none has to be helped.
func TestTwentyJoinsAtOnce(t *testing.T) {
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1})
	began := time.Now()
	c.AddAgents(20)
	c.AwaitHealthy(began, 4*time.Minute)
	t.Logf("20 agents were Ready %.1f s after the first was made", time.Since(began).Seconds())
	for _, h := range c.Agents {
		if s := c.Running(h); s.Restarts() > 0 {
			t.Errorf("on %s a half of coracle ended:\n%s", h.Name, s.Log())
		}
	}
}
