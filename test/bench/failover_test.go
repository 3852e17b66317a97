package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
)

// measureFailover unplugs the host that leads etcd, several times, while a client writes through the balancer of an
// agent.
func measureFailover(t *testing.T, runs int, r *results) {
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Agents: 1})
	for i := range runs {
		h, err := c.Leader()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r.add("leader's host killed: API away from a balanced client", "s", 5, away(t, c, i, h.Kill).Seconds())
		c.Boot(h)
		c.AwaitHealthy(began, time.Minute)
	}
	for _, h := range c.Hosts() {
		h.Kill()
	}
}

// away is the longest time without a successful write, from two seconds before the fault until it is certainly over.
func away(t *testing.T, c *hosts.Cluster, run int, fault func()) time.Duration {
	t.Helper()
	client, err := c.Client(c.Agents[0], hosts.Balancer)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	time.AfterFunc(2*time.Second, fault)
	last, longest := begin, time.Duration(0)
	for i := 0; time.Since(begin) < 17*time.Second; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("away-%d-%d", run, i)}}
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
		cancel()
		if now := time.Now(); err == nil {
			longest, last = max(longest, now.Sub(last)), now
		}
		time.Sleep(20 * time.Millisecond) // the load: fifty a second at most
	}
	return max(longest, time.Since(last))
}
