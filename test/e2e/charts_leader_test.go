package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testChartsLeader cuts off the leading server while it installs a chart. Another server must finish the installation,
// and the first one, whose control plane goes on, must not change anything of it when it is back.
func testChartsLeader(t *testing.T, c *hosts.Cluster) {
	before := controlPlanes(t, c)
	i := leading(t, c, c.Servers[0])
	leader, others := c.Servers[i], slices.Delete(slices.Clone(c.Servers), i, i+1)
	revisions := func(h *hosts.Host) (string, error) {
		return h.TryCoracle("kubectl", "get", "secrets", "-l", "owner=helm,name=moved",
			"-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.status} {.metadata.resourceVersion} {end}`)
	}
	// The chart's hook must run on a host that is not cut off: until a lost node is detected, it still gets pods.
	leader.Kubectl("cordon", leader.Name)
	leader.Apply(helmChart("moved", inline(t, chartFiles(t, "1.0.0")), `set: {hook: "8"}`))
	expect(t, "pending-install", func() (string, error) { return revisions(leader) })
	c.Links.Isolate(leader)
	began := time.Now()
	expect(t, "pending-install", func() (string, error) { return revisions(others[0]) }) // the leader was cut off during the installation
	var done string
	hosts.Eventually(t, 3*time.Minute, func() (err error) {
		done, err = revisions(others[0])
		if err == nil && !strings.Contains(done, "deployed") {
			err = fmt.Errorf("revisions are %q", done)
		}
		return err
	})
	t.Logf("installed by another server %.1f s after the first was cut off", time.Since(began).Seconds())
	if leading(t, c, others[0]) == i {
		t.Errorf("%s still leads", leader.Name)
	}
	c.Links.Heal()
	c.AwaitHealthy(time.Now(), 3*time.Minute)
	if now, err := revisions(others[0]); now != done {
		t.Errorf("revisions were %q, are %q (%v)", done, now, err)
	}
	ready(others[0], "moved")
	if after := controlPlanes(t, c); !slices.Equal(before, after) {
		t.Errorf("the control planes were processes %d, and are %d", before, after)
	}
	leader.Kubectl("uncordon", leader.Name)
}
