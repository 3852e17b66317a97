package join

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func hostOf(t *testing.T, role config.Role, name string) config.Config {
	root := t.TempDir()
	return config.Config{
		Role: role,
		Dirs: paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc", Kubelet: root + "/kubelet"},
		API: config.API{Bind: netip.IPv4Unspecified(), Advertise: netip.MustParseAddr("192.0.2.1"), Port: 6443,
			KubeconfigPath: root + "/etc/kubeconfig.yaml", KubeconfigMode: 0o600},
		Node: config.Node{Name: name, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, BalancerPort: 6444},
	}
}

// cluster is a server that lets in who asks, and its token.
type cluster struct {
	cfg   config.Config
	url   string
	token string
	code  int    // what it refuses with, if not 0
	ca    []byte // what it says is its CA, if not its own
	asked []string

	reason string // of refusals
	tokens int    // requests with a token
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{cfg: hostOf(t, config.Server, "first")}
	if _, err := pki.EnsureServer(c.cfg); err != nil {
		t.Fatal(err)
	}
	pin, err := pki.OwnPin(c.cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	c.token = NewToken(pin).Text()
	pair, err := tls.LoadX509KeyPair(c.cfg.Dirs.PKI()+"/apiserver.crt", c.cfg.Dirs.PKI()+"/apiserver.key")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(c.answer))
	present := func(*tls.ClientHelloInfo) (*tls.Config, error) { // it changes with the authorities
		pair, err := tls.LoadX509KeyPair(c.cfg.Dirs.PKI()+"/apiserver.crt", c.cfg.Dirs.PKI()+"/apiserver.key")
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}, err
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, GetConfigForClient: present}
	s.StartTLS()
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *cluster) answer(w http.ResponseWriter, r *http.Request) {
	c.asked = append(c.asked, r.URL.Path)
	if r.Header.Get("Authorization") != "" {
		c.tokens++
	}
	if c.code != 0 {
		w.WriteHeader(c.code)
		_ = json.NewEncoder(w).Encode(Refusal{Reason: c.reason})
		return
	}
	ca, _ := pki.OwnCA(c.cfg.Dirs)
	if c.ca != nil {
		ca = c.ca
	}
	known := Cluster{CA: ca, Servers: []string{strings.TrimPrefix(c.url, "https://")},
		Settings: config.ClusterSettings{"cluster-domain": "boats", "encryption-provider-config": "kind: X\n"}}
	if r.URL.Path == PathCluster {
		_ = json.NewEncoder(w).Encode(known)
		return
	}
	var request Request
	_ = json.NewDecoder(r.Body).Decode(&request)
	cert, err := pki.SignNode(c.cfg.Dirs, request.CSR, request.Node, 0)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	response := Response{Cluster: known, Cert: cert}
	if r.URL.Path == PathServer {
		keys, _ := pki.ReadKeys(c.cfg.Dirs)
		response.Keys = &Keys{Files: keys}
	}
	_ = json.NewEncoder(w).Encode(response)
}

func joinerOf(t *testing.T, cfg config.Config) *joiner {
	t.Helper()
	j, err := newJoiner(cfg, func(config.Known) (config.Config, error) { return cfg, nil }, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	j.timeout = time.Minute // machines that run tests are busy
	return j
}

func (c *cluster) asking(cfg config.Config) config.Config {
	cfg.Join.Server, cfg.Join.Token = c.url, c.token
	return cfg
}

func TestAgentJoinsOnce(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Agent, "second")
	if _, err := joinerOf(t, cfg).agent(t.Context()); err == nil || !strings.Contains(err.Error(), "--server") {
		t.Errorf("without a server: %v", err)
	}
	known, err := joinerOf(t, c.asking(cfg)).agent(t.Context())
	if err != nil || !known.Joined || known.From != c.url || known.Settings["cluster-domain"] != "boats" {
		t.Fatalf("got %+v, %v", known, err)
	}
	if known, err = joinerOf(t, cfg).agent(t.Context()); err != nil || known.From != c.url {
		t.Errorf("without a token: %+v, %v", known, err)
	}
	if last := c.asked[len(c.asked)-1]; last != PathCluster {
		t.Errorf("it asked for %s", last)
	}
	c.code = http.StatusServiceUnavailable
	hasty := joinerOf(t, cfg)
	hasty.timeout = 3 * time.Second
	if known, err = hasty.agent(t.Context()); err != nil || known.From != c.url || known.Settings["cluster-domain"] != "boats" {
		t.Errorf("with a server that cannot answer: %+v, %v", known, err)
	}
	c.code = http.StatusForbidden
	if _, err = joinerOf(t, cfg).agent(t.Context()); err == nil || !strings.Contains(err.Error(), "join again") {
		t.Errorf("after it was removed: %v", err)
	}
	c.code = 0
	other := newCluster(t)
	if _, err = joinerOf(t, other.asking(cfg)).agent(t.Context()); err == nil || !strings.Contains(err.Error(), "the token is for another one") {
		t.Errorf("with another cluster's token: %v", err)
	}
	cfg.Node.Name = "third"
	if _, err = joinerOf(t, cfg).agent(t.Context()); err == nil || !strings.Contains(err.Error(), "needs a token") {
		t.Errorf("under another name: %v", err)
	}
	if _, err = joinerOf(t, other.asking(cfg)).agent(t.Context()); err == nil || !strings.Contains(err.Error(), "the token is for another one") {
		t.Errorf("under another name, with another cluster's token: %v", err)
	}
}

func TestServerJoins(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Server, "second")
	if known, err := joinerOf(t, cfg).server(t.Context(), false); known != nil || err != nil {
		t.Errorf("a first server: %+v, %v", known, err)
	}
	if _, err := joinerOf(t, c.asking(cfg)).server(t.Context(), true); err == nil || !strings.Contains(err.Error(), "a cluster of its own") {
		t.Errorf("with a cluster of its own: %v", err)
	}
	known, err := joinerOf(t, c.asking(cfg)).server(t.Context(), false)
	if err != nil || !known.Joined {
		t.Fatalf("got %+v, %v", known, err)
	}
	if _, err := pki.EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	if known, err = joinerOf(t, cfg).server(t.Context(), true); err != nil || known.From != c.url {
		t.Errorf("again: %+v, %v", known, err)
	}
	for _, file := range []string{"ca.key", "sa.key", "etcd/ca.key"} {
		if info, err := os.Stat(filepath.Join(cfg.Dirs.PKI(), file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A server that is killed between any two files never begins a cluster with what it has, and can join again.
func TestInterruptedServer(t *testing.T) {
	c := newCluster(t)
	keys, err := pki.ReadKeys(c.cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	for written := range len(keys) + 1 {
		cfg := hostOf(t, config.Server, "second")
		if err := (Memory{Joining: c.url}).Save(cfg.Dirs.ServerCluster()); err != nil {
			t.Fatal(err)
		}
		n := 0
		for name, data := range keys {
			if n++; n > written {
				break
			}
			path := filepath.Join(cfg.Dirs.PKI(), name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := joinerOf(t, cfg).server(t.Context(), false); err == nil || !strings.Contains(err.Error(), "was joining "+c.url) {
			t.Errorf("after %d files, without a token: %v", written, err)
		}
		if known, err := joinerOf(t, c.asking(cfg)).server(t.Context(), false); err != nil || !known.Joined {
			t.Errorf("after %d files: %v", written, err)
		}
		if _, err := pki.EnsureServer(cfg); err != nil {
			t.Error(err)
		}
	}
}

// What contradicts the cluster's settings is found before anything is written.
func TestContradictionLeavesNothing(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Server, "second")
	j := joinerOf(t, c.asking(cfg))
	j.resolve = func(config.Known) (config.Config, error) { return cfg, errors.New("contradiction") }
	if _, err := j.server(t.Context(), false); err == nil || err.Error() != "contradiction" {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(cfg.Dirs.PKI() + "/*"); len(files) > 0 {
		t.Errorf("it left %q", files)
	}
	if _, err := os.Stat(cfg.Dirs.ServerCluster()); err == nil {
		t.Error("it remembers the cluster")
	}
}

func TestTokensForOthers(t *testing.T) {
	cfg := hostOf(t, config.Server, "first")
	keep := func(text string) error {
		t, err := parseEither(text, "")
		if err != nil {
			return err
		}
		agents, err := parseEither(cfg.Join.AgentToken, "")
		if err != nil {
			return err
		}
		return offerTokens(cfg, t, agents)
	}
	cfg.Join.AgentToken = "for-agents-only"
	if err := keep("for-everybody"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{cfg.Dirs.Token(), cfg.Dirs.AgentToken()} {
		kept, err := ReadToken(file)
		if err != nil || kept.ID == "" {
			t.Errorf("%s: %v, %v", file, kept, err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := keep("for-agents-only"); err == nil || !strings.Contains(err.Error(), "the same") {
		t.Errorf("one token for both: %v", err)
	}
	if err := keep(NewToken(strings.Repeat("0a", 32)).Text()); err == nil || !strings.Contains(err.Error(), "--server") {
		t.Errorf("another cluster's token: %v", err)
	}
	// Whoever of several servers is installed anew, and joins the others, goes on to offer what all were given.
	cfg.Join.Server = "https://10.0.0.1:6443"
	for text, kept := range map[string]bool{"for-everybody": true, "abcdef.0123456789abcdef": false} {
		if err := keep(text); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(cfg.Dirs.Token()); (err == nil) != kept {
			t.Errorf("a server that joins with %s: %v", text, err)
		}
	}
	cfg.Join.Server, cfg.Join.AgentToken = "", ""
	if err := offerTokens(cfg, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.Dirs.Token()); err == nil {
		t.Error("a token that is not given any more is kept")
	}
}

// TestShortTokens: a cluster does not begin with a token that can be guessed, and one that has it goes on.
func TestShortTokens(t *testing.T) {
	for _, c := range []struct {
		name, own, agents string
		exists            bool // the cluster
		want              string
	}{
		{"15 characters", "correct-horse-b", "", false, "the text of --token can be guessed, because it has fewer than 16 characters"},
		{"15 characters of two bytes", strings.Repeat("é", 15), "", false, "--token can be guessed"},
		{"for agents", "", "correct-horse-b", false, "--agent-token can be guessed"},
		{"16 characters", "correct-horse-ba", "battery-staple-16", false, ""},
		{"of Kubernetes", "abcdef.0123456789abcdef", "", false, ""},
		{"existing cluster", "correct-horse", "correct-cow", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := hostOf(t, config.Server, "first")
			cfg.Join.Token, cfg.Join.AgentToken = c.own, c.agents
			if c.exists {
				if err := os.MkdirAll(filepath.Join(cfg.Dirs.Etcd(), "member"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Run(t.Context(), cfg, nil, nil)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(cfg.Dirs.ServerCluster()); (err == nil) != (c.want == "") {
				t.Errorf("the settings are written: %v", err)
			}
		})
	}
}

// TestInterruptedWhileKeysAreWritten: the server that is being joined is on disk before the first of its keys.
func TestInterruptedWhileKeysAreWritten(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Server, "second")
	j := joinerOf(t, c.asking(cfg))
	if err := os.MkdirAll(filepath.Join(cfg.Dirs.PKI(), "ca.key"), 0o700); err != nil { // a directory: the key cannot be written
		t.Fatal(err)
	}
	if _, err := j.server(t.Context(), false); err == nil {
		t.Fatal("it joined without its keys")
	}
	if m, err := LoadMemory(cfg.Dirs.ServerCluster()); err != nil || m.Joining != c.url || m.Joined {
		t.Errorf("it remembers %+v, %v", m, err)
	}
}

// TestRefreshKeepsTrust: a server's answer does not change which CA an agent trusts.
func TestRefreshKeepsTrust(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Agent, "second")
	if _, err := joinerOf(t, c.asking(cfg)).agent(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := LoadMemory(cfg.Dirs.Cluster())
	if err != nil {
		t.Fatal(err)
	}
	c.ca, err = pki.OwnCA(newCluster(t).cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	if known, err := joinerOf(t, cfg).agent(t.Context()); err != nil || known.From != c.url {
		t.Fatalf("%+v, %v", known, err)
	}
	if after, err := LoadMemory(cfg.Dirs.Cluster()); err != nil || !bytes.Equal(after.CA, before.CA) {
		t.Errorf("the agent trusts %s, %v", after.CA, err)
	}
}

// replaceCA goes through a change of the authorities, and stops after a stage.
func replaceCA(t *testing.T, cfg config.Config, last pki.RotationStage) pki.Rotation {
	t.Helper()
	r, err := pki.BeginRotation(cfg.Dirs, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for {
		if err := pki.Adopt(cfg, r.Files()); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Stage == last:
			return r
		case r.Stage == pki.Trusting:
			r.Stage = pki.Signing
		default:
			r = r.Finish()
		}
	}
}

// TestReplaced: a running node notices that the cluster has another authority, and that a former one is accepted no more. When it has renewed its certificate, it
// knows the same ones as the servers.
func TestReplaced(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Agent, "second")
	cfg.Node.BalancerPort = netip.MustParseAddrPort(strings.TrimPrefix(c.url, "https://")).Port()
	if _, err := joinerOf(t, c.asking(cfg)).agent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if Replaced(t.Context(), cfg) {
		t.Error("nothing was replaced")
	}
	renews := func(what string, want int) {
		t.Helper()
		if !Replaced(t.Context(), cfg) {
			t.Errorf("%s: it does not notice that", what)
		}
		client, err := AsNode(cfg)
		if err == nil {
			err = Renew(t.Context(), cfg, client)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		data, err := os.ReadFile(filepath.Join(cfg.Dirs.NodePKI(), "ca.crt"))
		if known := len(pki.ParseCerts(data)); err != nil || known != want || Replaced(t.Context(), cfg) {
			t.Errorf("%s: it knows %d authorities, %v", what, known, err)
		}
	}
	for range 2 {
		r := replaceCA(t, c.cfg, pki.Signing)
		renews("another authority signs", 2)
		if err := pki.Adopt(c.cfg, r.Finish().Files()); err != nil {
			t.Fatal(err)
		}
		renews("the former one is dropped", 1)
	}
}

// TestFormerToken: a token with the hash of an authority that was replaced, also twice, lets machines join, and start again with it.
func TestFormerToken(t *testing.T) {
	c, before := newCluster(t), hostOf(t, config.Agent, "before")
	starts := func(cfg config.Config, what string) {
		t.Helper()
		if known, err := joinerOf(t, c.asking(cfg)).agent(t.Context()); err != nil || known.From != c.url {
			t.Errorf("%s: %+v, %v", what, known, err)
		}
	}
	starts(before, "the first join")
	for round := range 2 {
		for _, stage := range []pki.RotationStage{pki.Trusting, pki.Signing, pki.Finished} {
			replaceCA(t, c.cfg, stage)
			fresh := hostOf(t, config.Agent, "after")
			for _, what := range []string{"at first", "again"} {
				what = fmt.Sprintf("change %d, %s, %s", round+1, stage, what)
				starts(before, "who has joined before, "+what)
				starts(fresh, "who joins then, "+what)
			}
		}
	}
	c.code = http.StatusServiceUnavailable
	hasty := joinerOf(t, c.asking(before))
	hasty.timeout = 500 * time.Millisecond
	if _, err := hasty.agent(t.Context()); err != nil {
		t.Errorf("with a server that cannot answer: %v", err)
	}
	other := newCluster(t)
	if _, err := joinerOf(t, other.asking(before)).agent(t.Context()); err == nil || !strings.Contains(err.Error(), "the token is for another one") {
		t.Errorf("with another cluster's token: %v", err)
	}
}

// TestOtherServers: a server does not ask itself, and an agent also asks servers that have left the list.
func TestOtherServers(t *testing.T) {
	for role, want := range map[config.Role]string{
		config.Server: "192.0.2.2:6443 192.0.2.1:7443 192.0.2.3:6443",
		config.Agent:  "192.0.2.1:6443 192.0.2.2:6443 192.0.2.1:7443 192.0.2.3:6443 192.0.2.4:6443",
	} {
		cfg := hostOf(t, role, "first")
		j := joinerOf(t, cfg)
		j.memory.Servers = []string{"192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.1:7443"}
		balancer := `{"servers": ["192.0.2.2:6443", "192.0.2.3:6443"], "former": ["192.0.2.4:6443"]}`
		if err := errors.Join(os.MkdirAll(filepath.Dir(cfg.Dirs.Servers()), 0o700), os.WriteFile(cfg.Dirs.Servers(), []byte(balancer), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(j.others(), " "); got != want {
			t.Errorf("%s asks %s, want %s", role, got, want)
		}
	}
}
