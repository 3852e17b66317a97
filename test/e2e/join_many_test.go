package e2e

import (
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestTwentyJoinsAtOnce starts twenty agents at the same moment: all join without help.
func TestTwentyJoinsAtOnce(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1})
	made := time.Now()
	c.AddAgents(20)
	started := time.Now()
	c.AwaitHealthy(made, 12*time.Minute)
	t.Logf("20 agents were started within %.1f s, and all Ready %.1f s later", started.Sub(made).Seconds(), time.Since(started).Seconds())
	for _, h := range c.Agents {
		if s := c.Running(h); s.Restarts() > 0 {
			t.Errorf("on %s a process of coracle ended:\n%s", h.Name, s.Log())
		}
	}
}
