package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestManage tests the commands that manage tokens and nodes.
func TestManage(t *testing.T) {
	slots.Take(t)
	b := &badJoins{Cluster: hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 2})}
	b.server, b.agent = b.Servers[0], b.Agents[0]
	t.Run("rename", b.rename)
	t.Run("tokens", b.tokens)
	t.Run("plain token", b.plainToken)
	t.Run("elsewhere", b.elsewhere)
	t.Run("drain", b.drain)
	t.Run("remove", b.remove)
}

// rename starts an agent under another name, and then under its first name again.
func (b *badJoins) rename(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	h := b.Agents[1]
	if err := b.Running(h).Stop(); err != nil {
		t.Error(err)
	}
	s := h.StartAgent("--token-file=/etc/coracle/token", "--server=https://"+b.server.IP.String()+":6443", "--node-name=renamed")
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, was := client.CoreV1().Nodes().Get(t.Context(), h.Name, metav1.GetOptions{})
		_, is := client.CoreV1().Nodes().Get(t.Context(), "renamed", metav1.GetOptions{})
		if is == nil && apierrors.IsNotFound(was) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the old node: %v, the new one: %v", was, is)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	began := time.Now()
	b.Start(h)
	b.AwaitHealthy(began, 3*time.Minute)
}

// admits reports whether a machine can join with the token, as an agent.
func (b *badJoins) admits(t *testing.T, text string) bool {
	t.Helper()
	b.guests++
	name := fmt.Sprintf("guest-%d", b.guests)
	m := newMachine(t, name, "system:coracle:node:"+name, "system:coracle:nodes")
	var code int
	var body string
	hosts.Eventually(t, 30*time.Second, func() error { // as long as a machine that joins asks a server that starts
		code, body = asker{b: b, bearer: bearer(t, text)}.ask(t, http.MethodPost, join.PathAgent, m.request())
		if code == http.StatusServiceUnavailable && strings.Contains(body, join.StartingHeader) {
			return errors.New("the server is starting")
		}
		return nil
	})
	if code != http.StatusOK && code != http.StatusUnauthorized {
		t.Errorf("%d %s", code, body)
	}
	return code == http.StatusOK
}

// fails runs a command that must fail with a message.
func (b *badJoins) fails(t *testing.T, h *hosts.Host, sentence string, args ...string) {
	t.Helper()
	if out, err := h.TryCoracle(args...); err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("coracle %v: %s, %v, want %q", args, out, err, sentence)
	}
}

// awaitRefusal waits until a token is refused: the authenticator caches a valid one for ten seconds.
func (b *badJoins) awaitRefusal(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); b.admits(t, text); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the token is good for ever")
		}
	}
}

func (b *badJoins) tokens(t *testing.T) {
	var made struct{ ID, Role, Token string }
	out := b.server.Coracle("token", "create", "--description", "the cellar", "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Role != "agent" || !strings.Contains(made.Token, made.ID+".") {
		t.Fatalf("%s: %v", out, err)
	}
	hosts.Eventually(t, 4*time.Second, func() error { // as long as a machine that joins asks again: the server learns of a new token by a watch
		if !b.admits(t, made.Token) {
			return errors.New("a new token is refused")
		}
		return nil
	})
	list := b.server.Coracle("token", "list")
	_, secret, _ := strings.Cut(made.Token, made.ID+".")
	if !strings.Contains(list, made.ID) || !strings.Contains(list, "the cellar") || strings.Contains(list, secret) ||
		!strings.Contains(list, "server-1 is started with it") {
		t.Errorf("listed is\n%s", list)
	}
	if json := b.server.Coracle("token", "list", "-o", "json"); strings.Contains(json, secret) {
		t.Error("a list has a secret")
	}
	rotated := strings.TrimSpace(b.server.Coracle("token", "rotate", made.ID))
	if !strings.Contains(rotated, made.ID+".") || rotated == made.Token {
		t.Errorf("rotated is %s", rotated)
	}
	if !b.admits(t, rotated) {
		t.Error("a rotated token is refused")
	}
	b.awaitRefusal(t, made.Token)
	b.server.Coracle("token", "delete", made.ID)
	b.awaitRefusal(t, rotated)
	b.fails(t, b.server, "there is no such token", "token", "delete", made.ID)
	out = b.server.Coracle("token", "join-command", "--role", "server")
	if !strings.Contains(out, "coracle server --server https://"+b.server.IP.String()+":6443 --token-file") || !strings.Contains(out, "\nC1") {
		t.Errorf("to paste:\n%s", out)
	}
}

// plainToken rotates the token with which all hosts were started.
func (b *badJoins) plainToken(t *testing.T) {
	const plain = "the-same-everywhere"
	if !b.admits(t, plain) {
		t.Error("the token of all hosts is refused")
	}
	var all []struct{ ID, StartedOn string }
	if err := json.Unmarshal([]byte(b.server.Coracle("token", "list", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(x struct{ ID, StartedOn string }) bool { return x.StartedOn == b.server.Name })
	if i < 0 {
		t.Fatalf("none of %+v is the server's", all)
	}
	rotated := strings.TrimSpace(b.server.Coracle("token", "rotate", all[i].ID))
	b.awaitRefusal(t, plain)
	if err := b.Running(b.server).Stop(); err != nil {
		t.Error(err)
	}
	began := time.Now()
	b.Start(b.server)
	b.AwaitHealthy(began, 3*time.Minute)
	if b.admits(t, plain) {
		t.Error("the retired token is good after a restart of the server")
	}
	if !b.admits(t, rotated) {
		t.Error("the rotated token is refused after a restart of the server")
	}
}

func (b *badJoins) elsewhere(t *testing.T) {
	for _, args := range [][]string{{"token", "create"}, {"token", "list"}, {"node", "remove", "agent-2"}} {
		b.fails(t, b.agent, "this machine is an agent", args...)
	}
}

func (b *badJoins) drain(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	b.server.Coracle("node", "drain", b.agent.Name)
	node, err := client.CoreV1().Nodes().Get(t.Context(), b.agent.Name, metav1.GetOptions{})
	if err != nil || !node.Spec.Unschedulable {
		t.Errorf("the node takes pods: %v", err)
	}
	b.server.Coracle("kubectl", "uncordon", b.agent.Name)
	b.fails(t, b.server, "there is no node nobody", "node", "drain", "nobody")
}

func (b *badJoins) remove(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	b.fails(t, b.server, "is the last server", "node", "remove", b.server.Name)
	gone := func(name string) bool {
		_, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	b.server.Apply(certified("edge", "edge.test"))
	b.server.Kubectl("label", "node", b.agent.Name, kube.GatewayLabel+"=true")
	gateway := func() string {
		return b.agent.Run("sh", "-c", "find /run/coracle/gateway -type f -name '*.json' 2>/dev/null || :")
	}
	pid := 0
	hosts.Eventually(t, time.Minute, func() (err error) {
		if gateway() == "" {
			return errors.New("the agent has no configuration of the gateway")
		}
		pid, err = b.Running(b.agent).ChildPID("gateway")
		return err
	})
	b.server.Coracle("node", "remove", b.agent.Name)
	if !gone(b.agent.Name) {
		t.Error("the node is still there")
	}
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(b.Running(b.agent).Log(), "was removed from the cluster"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the agent does not learn of it")
		}
	}
	if err := b.Running(b.agent).Wait(time.Minute); err == nil || !strings.Contains(err.Error(), "exit status 8") {
		t.Errorf("the agent ends with %v", err)
	}
	if left := gateway(); left != "" {
		t.Errorf("the agent that was removed keeps the gateway's %s", left)
	}
	if p, err := process.Find(pid); err == nil && !p.Ended() {
		t.Errorf("the gateway of the agent that was removed goes on: %+v", p)
	}
	b.server.Kubectl("delete", "ingress", "edge")
	if status, _ := b.agent.TryCoracle("status"); !strings.Contains(status, "was removed from the cluster") {
		t.Errorf("the status is\n%s", status)
	}
	if !gone(b.agent.Name) {
		t.Error("the node is there again")
	}
	again := b.agent.StartAgent("--token-file=/etc/coracle/token", "--server=https://"+b.server.IP.String()+":6443")
	if err := again.Wait(time.Minute); err == nil || !strings.Contains(again.Log(), "run coracle reset on this machine") {
		t.Errorf("with a token and its old key: %v\n%s", err, again.Log())
	}
	if status, _ := b.agent.TryCoracle("status"); !strings.Contains(status, "was removed from the cluster") {
		t.Errorf("the status is then\n%s", status)
	}
	b.agent.Coracle("reset", "--yes")
	began := time.Now()
	b.Provision(b.agent)
	if err := os.WriteFile(b.agent.Path("/etc/coracle/token"), []byte(b.token()), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Start(b.agent)
	b.AwaitHealthy(began, 3*time.Minute)
	b.server.Coracle("node", "remove", b.agent.Name)
	m := newMachine(t, b.agent.Name, "system:coracle:node:"+b.agent.Name, "system:coracle:nodes")
	asker{b: b, bearer: bearer(t, b.token())}.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusOK, "")
	dead := b.Agents[1]
	dead.Kill()
	b.server.Coracle("node", "remove", "--force", dead.Name)
	if !gone(dead.Name) {
		t.Error("the dead node is there")
	}
}

// testRemoveServer removes one of three servers, with its member. It returns after a reset only.
func testRemoveServer(t *testing.T, c *hosts.Cluster) {
	b := &badJoins{Cluster: c}
	first, last := b.Servers[0], b.Servers[2]
	b.fails(t, first, last.Name+" is running", "node", "remove", last.Name)
	if err := b.Running(last).Stop(); err != nil {
		t.Error(err)
	}
	first.Coracle("node", "remove", last.Name)
	for end := time.Now().Add(2 * time.Minute); strings.Contains(first.Coracle("etcd", "members"), last.Name); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its member stays")
		}
	}
	refused := b.Start(last)
	if err := refused.Wait(2 * time.Minute); err == nil || !strings.Contains(refused.Log(), "run coracle reset on this machine") {
		t.Errorf("a removed server: %v\n%s", err, refused.Log())
	}
	last.Coracle("reset", "--yes")
	b.Provision(last)
	began := time.Now()
	b.Start(last)
	b.AwaitHealthy(began, 3*time.Minute)
}
