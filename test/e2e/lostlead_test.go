package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// leading is the index of the server that holds the Lease of the control plane, as asked sees it.
func leading(t *testing.T, c *hosts.Cluster, asked *hosts.Host) int {
	t.Helper()
	holder := asked.Kubectl("-n", "kube-system", "get", "lease", "coracle-control-plane", "-o", "jsonpath={.spec.holderIdentity}")
	i := slices.IndexFunc(c.Servers, func(h *hosts.Host) bool { return h.Name == holder })
	if i < 0 {
		t.Fatalf("no server leads: the Lease is held by %q", holder)
	}
	return i
}

// controlPlanes are the process ids of the servers' control planes, with etcd and the API server.
func controlPlanes(t *testing.T, c *hosts.Cluster) (pids []int) {
	t.Helper()
	for _, h := range c.Servers {
		pid, err := c.Running(h).ChildPID("control-plane")
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// testLostLead takes the Lease away from the server that leads, and gives it back later. The controllers move each time, in the processes
// that run.
func testLostLead(t *testing.T, c *hosts.Cluster) {
	before := controlPlanes(t, c)
	first := leading(t, c, c.Servers[0])
	from, to := c.Servers[first], c.Servers[(first+1)%len(c.Servers)]
	lines := map[*hosts.Host]int{}
	for _, h := range c.Servers {
		lines[h] = len(c.Running(h).Errors())
	}
	from.Kubectl("create", "deployment", "moves", "--image=coracle.test/busybox:1", "--replicas=1", "--", "sleep", "infinity")
	for round, holder := range []*hosts.Host{to, from} {
		began := time.Now()
		from.Kubectl("-n", "kube-system", "patch", "lease", "coracle-control-plane", "--type=merge", "-p", `{"spec":{"holderIdentity":"`+holder.Name+`"}}`)
		unit(t, holder, "kube-scheduler", "ready")
		for _, h := range c.Servers {
			if h != holder {
				unit(t, h, "kube-controller-manager", "standby")
				unit(t, h, "kube-scheduler", "standby")
			}
		}
		from.Kubectl("scale", "deployment", "moves", fmt.Sprintf("--replicas=%d", round+2))
		from.Kubectl("wait", "deployment/moves", fmt.Sprintf("--for=jsonpath={.status.readyReplicas}=%d", round+2), "--timeout=1m")
		t.Logf("%s works as the leader %.1f s after the Lease was given to it", holder.Name, time.Since(began).Seconds())
	}
	if after := controlPlanes(t, c); !slices.Equal(before, after) {
		t.Errorf("the control planes were processes %d, and are %d", before, after)
	}
	for _, h := range c.Servers {
		if all := c.Running(h).Errors(); len(all)-lines[h] > 10 {
			t.Errorf("%s logged %d errors: %s", h.Name, len(all)-lines[h], all[lines[h]:])
		}
	}
	from.Kubectl("delete", "deployment", "moves", "--cascade=foreground")
}

// unit waits until a component of a host's control plane is in a state.
func unit(t *testing.T, h *hosts.Host, name, state string) {
	t.Helper()
	hosts.Eventually(t, time.Minute, func() error {
		var report struct {
			Processes []struct {
				Components []struct{ Name, State string }
			}
		}
		if err := json.Unmarshal([]byte(h.Coracle("status", "-o", "json")), &report); err != nil {
			return err
		}
		for _, p := range report.Processes {
			for _, u := range p.Components {
				if u.Name == name && u.State == state {
					return nil
				}
			}
		}
		return fmt.Errorf("%s of %s is not %s", name, h.Name, state)
	})
}
