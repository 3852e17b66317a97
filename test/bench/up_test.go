package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// measureUp measures local clusters on a host, with the payload unpacked and the nodes' files on the disk.
func measureUp(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	h := hosts.New(t, wire, "laptop", hosts.Options{})
	h.Coracle("kubectl", "version", "--client") // unpacks
	for i := range runs {
		name := fmt.Sprintf("run%d", i)
		for _, plan := range []struct {
			figure string
			limit  float64
			args   []string
		}{
			{"coracle up --nodes 3: all Ready", 15, []string{"--nodes=3"}},
			{"coracle up --servers 3: all Ready", 0, []string{"--servers=3"}},
		} {
			began := time.Now()
			h.Coracle(append([]string{"up", name, "--data-dir=/var/lib/coracle/clusters"}, plan.args...)...)
			r.add(plan.figure, "s", plan.limit, time.Since(began).Seconds())
			began = time.Now()
			h.Coracle("down", name, "--data-dir=/var/lib/coracle/clusters")
			r.add("coracle down", "s", 0, time.Since(began).Seconds())
		}
	}
	h.Kill()
}
