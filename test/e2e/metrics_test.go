package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestMetrics queries two servers for the usage of three nodes and their pods, one of which can be reached only through
// its tunnels, and lets autoscalers use it. The cluster's authorities are a company's.
func TestMetrics(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	company := newCompany(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 2, Agents: 1, Images: true,
		ServerArgs: []string{"--kube-controller-manager-arg=horizontal-pod-autoscaler-sync-period=3s"},
		Prepare: func(h *hosts.Host) []string {
			if strings.HasPrefix(h.Name, "agent") {
				h.Run("sh", "-c", "echo '"+firewall+"' | nft -f -")
			}
			if h.Name == "server-1" {
				company.write(h.Data("server", "pki"), "one")
			}
			return nil
		}})
	began := time.Now()
	server, agent := c.Servers[0], c.Agents[0]
	server.Apply(manifest(t, "metrics.yaml"))
	for _, h := range c.Servers {
		hosts.Eventually(t, time.Minute, func() error { return topNodes(h) })
	}
	ready := lastReady(t, server)
	if ready.Before(began) { // the time before the first query is not counted
		ready = began
	}
	t.Logf("kubectl top nodes at every server %.1f s after the last node was Ready", time.Since(ready).Seconds())
	if late := time.Since(ready); late > 20*time.Second {
		t.Errorf("kubectl top works %s after the last node was Ready", late)
	}
	server.Kubectl("wait", "--for=condition=Available", "deployment/busy", "deployment/big", "--timeout=3m")
	for _, h := range c.Servers {
		hosts.Eventually(t, 2*time.Minute, func() error {
			out, err := h.TryCoracle("kubectl", "top", "pods", "--containers")
			if err != nil {
				return err
			}
			return contains("top pods", out, "busy")
		})
	}
	t.Run("together", func(t *testing.T) {
		for _, part := range []struct {
			name string
			test func(*testing.T, *hosts.Cluster)
		}{
			{"scale on CPU", func(t *testing.T, c *hosts.Cluster) { scale(t, c, "cpu", "busy", "3") }}, // takes longest
			{"scale on memory", func(t *testing.T, c *hosts.Cluster) { scale(t, c, "memory", "big", "2") }},
			{"who may ask", testMetricsRoles},
			{"status", testUsageInStatus},
			{"Prometheus", testPrometheus},
		} {
			t.Run(part.name, func(t *testing.T) {
				t.Parallel()
				part.test(t, c.For(t))
			})
		}
	})
	t.Run("a frozen node", func(t *testing.T) {
		agent.Freeze()
		defer agent.Thaw()
		time.Sleep(6 * time.Second) // until the figures are old enough for another measurement
		began := time.Now()
		server.For(t).Kubectl("top", "nodes")
		if took := time.Since(began); took > 7*time.Second { // waiting for the frozen one takes ten seconds
			t.Errorf("kubectl top took %s", took)
		}
	})
	t.Run("authorities of a company", func(t *testing.T) { testCompany(t, c.For(t), company) })
}

// topNodes returns an error unless a server has figures of all nodes.
func topNodes(h *hosts.Host) error {
	out, err := h.TryCoracle("kubectl", "top", "nodes", "--no-headers")
	if err != nil {
		return err
	}
	if strings.Count(out, "\n") != 3 || strings.Contains(out, "unknown") {
		return fmt.Errorf("%s has figures of these nodes only: %s", h.Name, out)
	}
	return nil
}

// lastReady is the time when the last node became Ready.
func lastReady(t *testing.T, h *hosts.Host) (last time.Time) {
	t.Helper()
	out := h.Kubectl("get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].lastTransitionTime}`)
	for _, text := range strings.Fields(out) {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// scale puts load on a deployment's pods, and removes it.
func scale(t *testing.T, c *hosts.Cluster, load, deployment, most string) {
	server, agent := c.Servers[0], c.Agents[0]
	file := "/var/lib/load/" + load
	await := func(replicas string) {
		t.Helper()
		began := time.Now()
		out, err := server.TryCoracle("kubectl", "wait", "--for=jsonpath={.status.readyReplicas}="+replicas, "deployment/"+deployment, "--timeout=3m")
		if err != nil {
			top, _ := server.TryCoracle("kubectl", "top", "pods")
			t.Fatalf("not %s replicas: %s%s%s", replicas, out, top, server.Kubectl("describe", "hpa", deployment))
		}
		t.Logf("%s replicas after %.1f s", replicas, time.Since(began).Seconds())
	}
	agent.Run("touch", file)
	await(most)
	agent.Run("rm", file)
	await("1")
}

func testMetricsRoles(t *testing.T, c *hosts.Cluster) {
	h := c.Servers[1]
	for who, want := range map[string]string{
		"system:serviceaccount:default:viewer":  "yes",
		"system:serviceaccount:default:default": "no",
	} {
		out, _ := h.TryCoracle("kubectl", "auth", "can-i", "list", "pods.metrics.k8s.io", "--as="+who)
		if strings.TrimSpace(out) != want {
			t.Errorf("may %s see what pods use? %s", who, out)
		}
	}
	if out := h.Kubectl("top", "pods", "--as=system:serviceaccount:default:viewer"); !strings.Contains(out, "busy") {
		t.Errorf("the viewer sees %s", out)
	}
}

// testUsageInStatus compares the figures with those of coracle status, on a server and on an agent.
func testUsageInStatus(t *testing.T, c *hosts.Cluster) {
	for _, h := range []*hosts.Host{c.Servers[1], c.Agents[0]} {
		hosts.Eventually(t, time.Minute, func() error {
			return contains("status of "+h.Name, h.Coracle("status"), "Usage:")
		})
	}
}

// TestMetricsDisabled disables and enables metrics-server, beside an APIService that refers to another one.
func TestMetricsDisabled(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "solo")
	const object, figures = "apiservice/v1beta1.metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1/nodes"
	run := func(check func(), args ...string) {
		t.Helper()
		s := h.Start(args...)
		waitReady(t, h)
		check()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	get := func(field string) string {
		out, _ := h.TryCoracle("kubectl", "get", object, "-o", "jsonpath={"+field+"}")
		return out
	}
	run(func() {
		h.Kubectl("get", "--raw", figures)
		h.Kubectl("patch", object, "--type=merge", "-p", `{"spec":{"service":{"name":"theirs","namespace":"default"},"insecureSkipTLSVerify":true}}`)
		hosts.Eventually(t, time.Minute, func() error {
			return fails(h, "unable to handle the request", "get", "--raw", figures) // because the APIService refers to another metrics-server, which does not exist
		})
	})
	run(func() {
		hosts.Eventually(t, time.Minute, func() error {
			return fails(h, "not found", "get", "clusterrole", "system:coracle:metrics-reader")
		})
		if name := get(".spec.service.name"); name != "theirs" {
			t.Errorf("--disable metrics-server leaves an APIService for the Service %q", name)
		}
		h.Kubectl("delete", object)
		hosts.Eventually(t, time.Minute, func() error { return fails(h, "could not find the requested resource", "get", "--raw", figures) })
	}, "--disable=metrics-server")
	run(func() {
		hosts.Eventually(t, time.Minute, func() error {
			return contains("the APIService", get(".status.conditions[0].reason"), "Local")
		})
	})
	run(func() {
		hosts.Eventually(t, time.Minute, func() error {
			return fails(h, "not found", "get", object)
		})
	}, "--disable=metrics-server")
}

// fails returns an error unless a kubectl command fails with the message.
func fails(h *hosts.Host, why string, args ...string) error {
	out, err := h.TryCoracle(append([]string{"kubectl"}, args...)...)
	if err == nil {
		return fmt.Errorf("kubectl %s succeeds: %s", strings.Join(args, " "), out)
	}
	return contains("the error", err.Error()+out, why)
}
