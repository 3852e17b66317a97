package bench

import (
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
)

// measureJoins lets agents and servers join a cluster, with the payload unpacked.
func measureJoins(t *testing.T, runs int, r *results) {
	for range runs {
		c := hosts.NewCluster(t, hosts.Plan{Servers: 1})
		agent := c.NewHost("agent-1")
		began := time.Now()
		c.Start(agent)
		await(t, agent)
		r.add("agent: exec to its node Ready", "s", 4, readyAt(t, agent, began, state.Node, "node-ready"))
		for _, name := range []string{"server-2", "server-3"} {
			server := c.NewHost(name)
			began := time.Now()
			c.Start(server)
			await(t, server)
			voting := readyAt(t, server, began, state.ControlPlane, "etcd")
			serving := readyAt(t, server, began, state.ControlPlane, "kube-apiserver")
			r.add(name+": exec to voting member and API ready", "s", 8, max(voting, serving))
		}
		for _, h := range append(c.Hosts(), agent) {
			h.Kill()
		}
	}
}

func await(t *testing.T, h *hosts.Host) {
	t.Helper()
	h.Coracle("wait", "--timeout", "60s")
}

// measureIdleAgent measures an agent without pods.
func measureIdleAgent(t *testing.T, r *results) {
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1})
	processes := c.Running(c.Agents[0]).Processes()
	time.Sleep(settle)
	before := measureAll(t, processes)
	time.Sleep(window)
	var memory, cpu float64
	for i, now := range measureAll(t, processes) {
		r.add("idle agent: private memory of "+processes[i].Name, "MB", 0, now.anonMB)
		memory += now.anonMB
		cpu += 100 * (now.cpu - before[i].cpu) / window.Seconds()
	}
	r.add("idle agent: private memory", "MB", 80, memory)
	r.add("idle agent: processor", "%", 0, cpu)
	for _, h := range c.Hosts() {
		h.Kill()
	}
}
