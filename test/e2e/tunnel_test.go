package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// firewall drops connections that other hosts open to a host, like a NAT.
const firewall = `table inet firewall {
	chain input {
		type filter hook input priority -10; policy accept;
		iifname "eth0" ct state new meta l4proto { tcp, udp } drop
	}
}
`

// TestTunnel runs two servers and an agent that they cannot dial, and connects to the agent through both.
func TestTunnel(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 2, Agents: 1, Images: true, Prepare: func(h *hosts.Host) []string {
		if strings.HasPrefix(h.Name, "agent") {
			h.Run("sh", "-c", "echo '"+firewall+"' | nft -f -")
		}
		return nil
	}})
	agent := c.Agents[0]
	cert, key := selfSigned(t, "secure.default.svc")
	c.Servers[0].Apply(manifest(t, "tunnel.yaml", "${CERT}", cert, "${KEY}", key))
	if _, err := c.Servers[0].TryCoracle("kubectl", "wait", "--for=condition=Ready", "pod/web", "pod/secure", "--timeout=3m"); err != nil {
		t.Fatalf("%v: %s", err, c.Servers[0].Kubectl("describe", "pods"))
	}
	for _, s := range c.Servers {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := s.Dial(ctx, "tcp", agent.IP.String()+":10250"); err == nil {
			t.Fatalf("%s can dial the agent", s.Name)
		}
		cancel()
		t.Run(s.Name, func(t *testing.T) { reach(t, s.For(t)) })
	}
	t.Run("direct where it can", func(t *testing.T) { // the servers' own nodes have no firewall
		for _, h := range c.Servers {
			for _, tunnel := range tunnels(t, h) {
				if tunnel.Server == h.IP.String()+":6443" {
					t.Errorf("%s has a tunnel to itself", h.Name)
				}
			}
		}
	})

	t.Run("the agent comes back", func(t *testing.T) {
		if err := c.Running(agent).Stop(); err != nil {
			t.Fatal(err)
		}
		hosts.Eventually(t, time.Minute, func() error {
			return fails(c.Servers[0], "node agent-1 has no tunnel to this server", "exec", "web", "--", "true")
		})
		c.Start(agent)
		reachAgain(t, c, c.Servers[0].For(t))
	})
	t.Run("a server comes back", func(t *testing.T) {
		last := c.Servers[1]
		pid, err := c.Running(last).ChildPID("control-plane")
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		reachAgain(t, c, last.For(t))
	})
}

// reachAgain measures how long it takes until a command runs on the agent again.
func reachAgain(t *testing.T, c *hosts.Cluster, from *hosts.Host) {
	t.Helper()
	began := time.Now()
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := from.TryCoracle("kubectl", "exec", "web", "--", "echo", "here")
		if err != nil {
			return err
		}
		return contains("exec", out, "here")
	})
	t.Logf("reached again after %.1f s", time.Since(began).Seconds())
}

// reach makes every kind of connection from one server to the agent.
func reach(t *testing.T, s *hosts.Host) {
	for name, want := range map[string]struct{ command, output string }{
		"logs":           {"kubectl logs web", "server on"},
		"exec":           {"kubectl exec web -- echo hello", "hello"},
		"exec stdin":     {"echo across | kubectl exec -i web -- cat", "across"},
		"much":           {"kubectl exec web -- head -c 104857600 /dev/zero | wc -c", "104857600"},
		"attach":         {"(kubectl attach web & sleep 2; kubectl get --raw /api/v1/namespaces/default/pods/web:8080/proxy/echo?msg=x >/dev/null; kill $!) 2>&1; echo done", "done"},
		"pod proxy":      {"kubectl get --raw '/api/v1/namespaces/default/pods/web:8080/proxy/echo?msg=proxied'", "proxied"},
		"service proxy":  {"kubectl get --raw /api/v1/namespaces/default/services/https:secure:webhook/proxy/readyz", "ok"},
		"node proxy":     {"kubectl get --raw /api/v1/nodes/agent-1/proxy/healthz", "ok"},
		"stats":          {"kubectl get --raw /api/v1/nodes/agent-1/proxy/stats/summary", "agent-1"},
		"webhook":        {"kubectl create configmap x --dry-run=server -o yaml >/dev/null; printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: denied, labels: {webhook: deny}}' | kubectl create -f - 2>&1; true", "denied the request"},
		"aggregated API": {"kubectl get --raw /apis/extension.coracle.test/v1/things", "NOW:"},
		"port-forward": {"kubectl port-forward pod/web 18080:8080 >/dev/null & pid=$!; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; " +
			"wget -q -O - 'http://127.0.0.1:18080/echo?msg=forwarded' && break; done; kill $pid", "forwarded"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			script := strings.ReplaceAll(want.command, "kubectl ", hosts.Bin(t)+" kubectl ")
			hosts.Eventually(t, 2*time.Minute, func() error {
				out, err := s.For(t).Try("sh", "-c", script)
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return contains(name, out, want.output)
			})
			t.Logf("%.1f s", time.Since(began).Seconds())
		})
	}
}

// tunnels is the report of a host's node process about its tunnels.
func tunnels(t *testing.T, h *hosts.Host) (all []state.Tunnel) {
	t.Helper()
	var report struct {
		Details map[string]json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal([]byte(h.Coracle("status", "-o", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(report.Details[state.TunnelsDetail], &all); err != nil {
		t.Fatal(err)
	}
	return all
}
