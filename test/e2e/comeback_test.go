package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// refusal is a join that must fail soon with one error message.
type refusal struct {
	name    string
	role    string
	token   string // "" for none
	args    []string
	prepare string // shell, on the host
	want    []string
	code    int // 5 if 0: the server refuses
}

// TestJoinMistakes: a mistake in a join command is reported within seconds.
func TestJoinMistakes(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, ServerArgs: []string{"--agent-token=only-for-the-agents"}})
	server := "https://" + c.Servers[0].IP.String() + ":6443"
	at := []string{"--server=" + server}
	bootstrapSecret(c.Servers[0], "aaaaaa", "0123456789abcdef", "agent", time.Hour)
	bootstrapSecret(c.Servers[0], "eeeeee", "0123456789abcdef", "agent", -time.Hour)
	wrongPin := "C1" + strings.Repeat("0a", 32) + "::aaaaaa.0123456789abcdef"
	for _, r := range []refusal{
		{name: "wrong pin", role: "agent", token: wrongPin, args: at, want: []string{"another cluster than the token is for"}},
		{name: "unknown token", role: "agent", token: "bbbbbb.0123456789abcdef", args: at, want: []string{server, "does not accept the token"}},
		{name: "expired token", role: "agent", token: "eeeeee.0123456789abcdef", args: at, want: []string{"has expired"}},
		{name: "agents' token for a server", role: "server", token: "aaaaaa.0123456789abcdef", args: at, want: []string{"--role server"}},
		{name: "--agent-token for a server", role: "server", token: "only-for-the-agents", args: at, want: []string{"--role server"}},
		{name: "no token", role: "agent", args: at, want: []string{"needs a token", "coracle token create"}, code: 2},
		{name: "cut token", role: "agent", token: wrongPin[:60], args: at, want: []string{"not whole"}, code: 2},
		{name: "no server", role: "agent", token: "aaaaaa.0123456789abcdef", args: []string{}, want: []string{"--server"}, code: 2},
		{name: "nobody there, once", role: "agent", token: "aaaaaa.0123456789abcdef",
			args: []string{"--server=https://127.0.0.1:6443", "--join-retry=false"}, want: []string{"does not answer: connect: connection refused"}},
		{name: "the kubelet's port", role: "agent", token: "aaaaaa.0123456789abcdef",
			args: []string{"--server=" + strings.Replace(server, "6443", "10250", 1)}, want: []string{"is not a coracle server"}},
		{name: "taken name", role: "agent", token: "aaaaaa.0123456789abcdef", args: append(at, "--node-name=server-1"),
			want: []string{"node name server-1 is a server's, which is a member of etcd", "--node-name"}},
		{name: "contradiction", role: "server", token: "the-same-everywhere", args: append(at, "--cluster-cidr=10.99.0.0/16", "--node-name=other-1"),
			want: []string{"--cluster-cidr is 10.99.0.0/16, but the cluster's is 10.42.0.0/16", server}, code: 2},
		{name: "a token that needs a server", role: "server", token: wrongPin, want: []string{"--server https://HOST:6443"}, code: 2},
		{name: "taken 2380", role: "server", token: "the-same-everywhere", args: at, prepare: "busybox nc -ll -p 2380 -e true >/dev/null 2>&1 & timeout 60 sh -c \"until grep -q :094C /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done\"", want: []string{"2380", "busybox"}, code: 3},
	} {
		t.Run(r.name, func(t *testing.T) {
			h := hosts.New(t, c.Wire, "joiner", hosts.Options{})
			if r.prepare != "" {
				h.Run("sh", "-c", r.prepare)
			}
			r.check(t, h)
		})
	}
}

func (r refusal) check(t *testing.T, h *hosts.Host) {
	t.Helper()
	args := []string{r.role}
	if r.token != "" {
		if err := os.WriteFile(h.Path("/tmp/token"), []byte(r.token), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--token-file=/tmp/token")
	}
	began := time.Now()
	output, err := h.Command("timeout", append([]string{"30", hosts.Bin(t)}, append(args, r.args...)...)...).CombinedOutput()
	out := string(output)
	took := time.Since(began)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	}
	t.Logf("exit code %d after %.1f s:\n%s", code, took.Seconds(), out)
	if code != cmp.Or(r.code, int(exitcode.Unreachable)) || took > 25*time.Second {
		t.Errorf("exit code %d (%v) after %s", code, err, took)
	}
	for _, w := range r.want {
		if !strings.Contains(out, w) {
			t.Errorf("the message does not say %q", w)
		}
	}
	if r.token != "" && strings.Contains(out, "0123456789abcdef") {
		t.Error("the message tells the token")
	}
}

// bootstrapSecret creates a token by hand, as kubeadm's documentation shows.
func bootstrapSecret(h *hosts.Host, id, secret, role string, ttl time.Duration) {
	h.Apply(fmt.Sprintf(`apiVersion: v1
kind: Secret
type: bootstrap.kubernetes.io/token
metadata: {name: bootstrap-token-%[1]s, namespace: kube-system}
stringData:
  token-id: %[1]s
  token-secret: %[2]s
  expiration: %[4]s
  usage-bootstrap-authentication: "true"
  auth-extra-groups: system:bootstrappers:coracle:%[3]s
`, id, secret, role, time.Now().Add(ttl).UTC().Format(time.RFC3339)))
}

// TestComeBack has tests with an agent that joins a server with the default settings. The order matters: after the last
// one the agent is dead.
func TestComeBack(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1})
	t.Run("check cis", func(t *testing.T) { testBenchmarkOnAll(t, c) })
	t.Run("tokens are hidden", func(t *testing.T) { testTokensAreHidden(t, c.For(t)) })
	t.Run("a stolen node", func(t *testing.T) { testStolenNode(t, c.For(t)) })
	t.Run("an agent as a gateway", func(t *testing.T) { testGatewayAgent(t, c.For(t)) })
	t.Run("another address while it runs", func(t *testing.T) { testRunningAgentMoves(t, c.For(t)) })
	t.Run("certificates are issued again", func(t *testing.T) { testRotate(t, c.For(t)) })
	t.Run("come back", func(t *testing.T) { testComeBack(t, c) })
	t.Run("replace a node", func(t *testing.T) { testReplaceNode(t, c) })
}

// testComeBack: a machine that has joined needs neither a token nor a reachable server at its next start.
func testComeBack(t *testing.T, c *hosts.Cluster) {
	server, agent := c.Servers[0], c.Agents[0]
	if err := c.Running(agent).Stop(); err != nil {
		t.Fatal(err)
	}

	t.Run("with nothing but itself", func(t *testing.T) {
		began := time.Now()
		s := agent.For(t).StartAgent()
		agent.For(t).Coracle("wait", "--timeout", "3m")
		t.Logf("back after %.1f s", time.Since(began).Seconds())
		if strings.Contains(s.Log(), "waiting to join") || strings.Contains(s.Log(), "joined the cluster") {
			t.Error("it joined again")
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("with an expired certificate", func(t *testing.T) { testExpiredAgent(t, server.For(t), agent.For(t)) })
	t.Run("after the authorities were replaced", func(t *testing.T) { testAwayDuringRotation(t, c.For(t)) })
	t.Run("with a setting that is not the cluster's", func(t *testing.T) {
		out, err := agent.Command(hosts.Bin(t), "agent", "--disable=dns").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--disable is dns, but the cluster's is nothing") {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
	if err := c.Running(server).Stop(); err != nil {
		t.Fatal(err)
	}
	t.Run("without a server", func(t *testing.T) {
		s := agent.For(t).StartAgent()
		deadline := time.Now().Add(2 * time.Minute)
		for !strings.Contains(s.Log(), "containerd: ready") {
			if time.Now().After(deadline) {
				t.Fatal("containerd does not run")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !strings.Contains(s.Log(), "no server answers; starting with the stored settings") {
			t.Error("nothing is said about the servers")
		}
		server.For(t).Start("--token-file=/etc/coracle/token")
		agent.For(t).Coracle("wait", "--timeout", "3m")
		if s.Restarts() > 0 {
			t.Errorf("the node process restarted:\n%s", s.Log())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServerComesBack: a server that has joined starts without arguments, and refuses a setting that contradicts the
// others; so does the first server, once there are others.
func TestServerComesBack(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 2, ServerArgs: []string{"--flannel-backend=host-gw", "--cluster-domain=boats.test"}})
	first, second := c.Servers[0], c.Servers[1]
	if err := c.Running(second).Stop(); err != nil {
		t.Fatal(err)
	}
	t.Run("second without arguments", func(t *testing.T) {
		s := second.For(t).Start()
		second.For(t).Coracle("wait", "--timeout", "3m")
		if strings.Contains(s.Log(), "joined the cluster") {
			t.Error("it joined again")
		}
		config := second.For(t).Coracle("config", "-o", "yaml")
		if !strings.Contains(config, "flannel-backend: host-gw # the cluster") {
			t.Errorf("the settings are not the cluster's:\n%s", config)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("second with another backend", func(t *testing.T) {
		out, err := second.Command("timeout", "30", hosts.Bin(t), "server", "--flannel-backend=vxlan").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--flannel-backend is vxlan, but the cluster's is host-gw, as https://"+first.IP.String()) {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
}

// testTokensAreHidden: other users on the machine cannot see a token that was given on the command line.
func testTokensAreHidden(t *testing.T, c *hosts.Cluster) {
	h := hosts.New(t, c.Wire, "another", hosts.Options{})
	s := h.StartAgent("--server=https://"+c.Servers[0].IP.String()+":6443", "--token", "the-same-everywhere")
	h.Coracle("wait", "--timeout", "3m")
	if out := h.Run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(strings.ReplaceAll(out, "sh /", ""), "coracle agent --server=https://"+c.Servers[0].IP.String()+":6443 --token the-same") &&
		!strings.Contains(out, "--token ***") {
		t.Errorf("the token is in the list of processes:\n%s", out)
	}
	for _, path := range []string{"/run/coracle", "/var/lib/coracle/node", "/var/lib/coracle/log"} {
		if out, _ := h.Try("grep", "-rl", "the-same-everywhere", path); out != "" {
			t.Errorf("the token is in %s", out)
		}
	}
	if strings.Contains(s.Log(), "the-same-everywhere") {
		t.Error("the log tells the token")
	}
}

// TestWaitingToJoin: an agent that was started before its server reports that it waits, and ends when it is stopped.
func TestWaitingToJoin(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "agent-1")
	s := h.StartAgent("--server=https://172.30.0.99:6443", "--token=the-same-everywhere")
	deadline := time.Now().Add(2 * time.Minute)
	for !strings.Contains(s.Log(), "waiting to join: https://172.30.0.99:6443 does not answer") {
		if time.Now().After(deadline) {
			t.Fatalf("it does not say that it waits:\n%s", s.Log())
		}
		time.Sleep(100 * time.Millisecond)
	}
	status, _ := h.Command(hosts.Bin(t), "status").CombinedOutput()
	if !strings.Contains(string(status), "172.30.0.99:6443 does not answer") {
		t.Errorf("status:\n%s", status)
	}
	waiting, err := h.Command(hosts.Bin(t), "wait", "--timeout=0").CombinedOutput()
	if err == nil || !strings.Contains(string(waiting), "waiting to join: https://172.30.0.99:6443 does not answer") {
		t.Errorf("wait:\n%s", waiting)
	}
	time.Sleep(5 * time.Second)
	if n := strings.Count(s.Log(), "waiting to join"); n > 2 {
		t.Errorf("it says so %d times in a few seconds:\n%s", n, s.Log())
	}
	began := time.Now()
	if err := s.Stop(); err != nil || time.Since(began) > 15*time.Second {
		t.Errorf("stopping took %s: %v", time.Since(began), err)
	}
}

// TestServersShareFiles: a joining server gets the content of the first server's files, and encrypts and decrypts with
// the same key.
func TestServersShareFiles(t *testing.T) {
	slots.Take(t)
	const file = "/etc/coracle/encryption.yaml"
	c := hosts.NewCluster(t, hosts.Plan{Servers: 2, Prepare: func(h *hosts.Host) []string {
		if h.Name != "server-1" {
			return nil
		}
		content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n" +
			"  providers:\n  - secretbox:\n      keys: [{name: a, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU=}]\n  - identity: {}\n"
		if err := os.WriteFile(h.Path(file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--encryption-provider-config=" + file, "--disable-admission-plugins=PodNodeSelector"}
	}})
	first, second := c.Servers[0], c.Servers[1]
	shared := "/var/lib/coracle/server/shared/encryption-provider-config"
	if got := second.Run("stat", "-c", "%a", shared); strings.TrimSpace(got) != "600" {
		t.Errorf("mode %s", got)
	}
	second.Kubectl("create", "secret", "generic", "boat", "--from-literal=name=coracle")
	if got := first.Kubectl("get", "secret", "boat", "-o", "jsonpath={.data.name}"); got != "Y29yYWNsZQ==" {
		t.Errorf("the first server reads %q", got)
	}
	config := second.Coracle("config", "-o", "json")
	if !strings.Contains(config, shared) {
		t.Error("the second server does not use the shared file")
	}
}

// testReplaceNode: another machine takes a node's name only with a token that allows it.
func testReplaceNode(t *testing.T, c *hosts.Cluster) {
	server := c.Servers[0]
	c.Agents[0].Kill()
	plain := strings.TrimSpace(server.Coracle("token", "create"))
	replacing := strings.TrimSpace(server.Coracle("token", "create", "--allow-replace"))
	h := hosts.New(t, c.Wire, "other", hosts.Options{})
	at := []string{"--server=https://" + server.IP.String() + ":6443", "--node-name=agent-1"}
	for _, r := range []refusal{
		{name: "without being asked", role: "agent", token: plain, args: at, want: []string{"agent-1 is another machine's", "--replace-node"}},
		{name: "with a token that does not allow it", role: "agent", token: plain, args: append(at, "--replace-node"), want: []string{"--allow-replace"}},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(t, h.For(t)) })
	}
	if err := os.WriteFile(h.Path("/tmp/token"), []byte(replacing), 0o600); err != nil {
		t.Fatal(err)
	}
	s := h.StartAgent(append(at, "--replace-node", "--token-file=/tmp/token")...)
	h.Coracle("wait", "--timeout", "3m")
	if strings.Contains(s.Log(), "does not identify its cluster") {
		t.Error("a token of coracle token create has no pin")
	}
	if got := server.Kubectl("get", "node", "agent-1", "-o", "jsonpath={.status.addresses[0].address}"); got != h.IP.String() {
		t.Errorf("agent-1 is at %s", got)
	}
	// The kubelet's key is not recorded, as after a restore: it requests another certificate by itself.
	server.Kubectl("-n", "kube-system", "annotate", "lease", "coracle-node-agent-1", "coracle.io/allowed-keys=", "--overwrite")
	hosts.Eventually(t, time.Minute, func() error {
		if keys := server.Kubectl("-n", "kube-system", "get", "lease", "coracle-node-agent-1", "-o", `jsonpath={.metadata.annotations.coracle\.io/allowed-keys}`); keys == "" {
			return errors.New("the kubelet of agent-1 has no key that the cluster knows")
		}
		return nil
	})
	h.Coracle("wait", "--timeout", "1m")
}
