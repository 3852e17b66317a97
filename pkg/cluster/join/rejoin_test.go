package join

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// expire replaces the certificate of an agent by one that expired a month ago.
func expire(t *testing.T, c *cluster, cfg config.Config) {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(c.cfg.Dirs.PKI()+"/ca.crt", c.cfg.Dirs.PKI()+"/ca.key")
	if err != nil {
		t.Fatal(err)
	}
	file, _ := pki.NodeFiles(cfg.Dirs)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cert := pki.ParseCerts(data)[0]
	cert.NotBefore, cert.NotAfter = time.Now().AddDate(0, -13, 0), time.Now().AddDate(0, -1, 0)
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.Leaf, cert.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestComesBackExpired: an agent that was off for longer than its certificate, and whose token file is gone, renews it with its key.
func TestComesBackExpired(t *testing.T) {
	c, cfg := newCluster(t), hostOf(t, config.Agent, "second")
	if _, err := joinerOf(t, c.asking(cfg)).agent(t.Context()); err != nil {
		t.Fatal(err)
	}
	key, _ := pki.Identity(cfg.Dirs)
	cfg.Join.Server, cfg.Join.TokenFile = c.url, cfg.Dirs.Config+"/gone"

	expire(t, c, cfg)
	c.asked, c.tokens = nil, 0
	other, _ := pki.OwnCA(newCluster(t).cfg.Dirs)
	c.code = http.StatusServiceUnavailable
	j := joinerOf(t, cfg)
	j.cfg.Join.Retry = true
	waited := 0
	j.waiting = func(why error) {
		if waited++; !strings.Contains(why.Error(), "has expired") {
			t.Errorf("it waits: %v", why)
		}
		c.code = 0
	}
	known, err := j.agent(t.Context())
	if err != nil || known.From != c.url || waited == 0 {
		t.Fatalf("got %+v, %v after waiting %d times", known, err, waited)
	}
	if _, expires, err := pki.NodeCert(cfg); err != nil || time.Now().After(expires) {
		t.Errorf("the certificate is valid until %s, %v", expires, err)
	}
	if now, _ := pki.Identity(cfg.Dirs); now != key || c.tokens != 0 {
		t.Errorf("it has the key %s, before %s; %d requests had a token", now, key, c.tokens)
	}

	expire(t, c, cfg)
	c.ca = append(other, mustCA(t, c)...) // the answer brings another CA along
	if _, err := joinerOf(t, cfg).agent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, err := LoadMemory(cfg.Dirs.Cluster()); err != nil || string(m.CA) != string(mustCA(t, c)) {
		t.Errorf("it trusts another CA now: %v", err)
	}

	expire(t, c, cfg)
	c.code, c.ca = http.StatusUnauthorized, nil
	if _, err := joinerOf(t, cfg).agent(t.Context()); exitcode.ClassOf(err) != exitcode.Unreachable || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("denied: %v", err)
	}
	j = joinerOf(t, cfg) // a server that is away says less than one that denies it
	j.cfg.Join.Server = ""
	j.memory.Servers = []string{"127.0.0.1:1", strings.TrimPrefix(c.url, "https://")}
	if _, err := j.agent(t.Context()); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("denied by the one that answers: %v", err)
	}
	c.code, c.reason = http.StatusForbidden, ReasonRemoved
	if _, err := joinerOf(t, cfg).agent(t.Context()); exitcode.ClassOf(err) != exitcode.Removed {
		t.Errorf("removed: %v", err)
	}
	before := newCluster(t)
	before.code, j = http.StatusUnauthorized, joinerOf(t, cfg)
	before.cfg = c.cfg // an older server of the same cluster, which denies it, is asked first
	j.memory.Servers = []string{strings.TrimPrefix(before.serveAs(t, c.cfg), "https://"), strings.TrimPrefix(c.url, "https://")}
	j.cfg.Join.Server = ""
	if _, err := j.agent(t.Context()); exitcode.ClassOf(err) != exitcode.Removed {
		t.Errorf("removed, says one of two servers: %v", err)
	}
	stranger := newCluster(t) // has the address of the server now
	cfg.Join.Server = stranger.url
	j = joinerOf(t, cfg)
	j.memory.Servers = nil
	if _, err := j.agent(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster") || len(stranger.asked) > 0 {
		t.Errorf("another cluster at the address: %v; it was asked %v", err, stranger.asked)
	}
	j = joinerOf(t, cfg) // one of several servers is another's
	if c.code = 0; len(j.memory.Servers) != 1 {
		t.Fatal(j.memory.Servers)
	}
	if _, err := j.agent(t.Context()); err != nil {
		t.Errorf("with one server of several: %v", err)
	}
}

// serveAs serves with the certificate of another cluster's server.
func (c *cluster) serveAs(t *testing.T, cfg config.Config) string {
	return serveAs(t, cfg, c.answer)
}

func mustCA(t *testing.T, c *cluster) []byte {
	t.Helper()
	data, err := pki.OwnCA(c.cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTokenFileIsGone: whoever has not joined needs the file; whoever has, does not, and a server goes on to offer its tokens.
func TestTokenFileIsGone(t *testing.T) {
	cfg := hostOf(t, config.Agent, "second")
	cfg.Join.Server, cfg.Join.TokenFile = "https://192.0.2.1:6443", cfg.Dirs.Config+"/gone"
	if _, err := newJoiner(cfg, nil, nil); exitcode.ClassOf(err) != exitcode.Misuse {
		t.Errorf("a machine that has not joined: %v", err)
	}
	begun := hostOf(t, config.Server, "second")
	begun.Join.Server, begun.Join.TokenFile = cfg.Join.Server, cfg.Join.TokenFile
	if err := errors.Join(Memory{Joining: cfg.Join.Server}.Save(begun.Dirs.ServerCluster()), os.MkdirAll(begun.Dirs.Etcd()+"/member", 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := newJoiner(begun, nil, nil); exitcode.ClassOf(err) != exitcode.Misuse {
		t.Errorf("a server that has begun to join: %v", err)
	}
	cfg = hostOf(t, config.Server, "first")
	cfg.Network.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}
	resolve := func(config.Known) (config.Config, error) { return cfg, nil }
	cfg.Join.Token, cfg.Join.AgentToken = "a-token-of-the-servers", "a-token-of-the-agents"
	if _, err := Run(t.Context(), cfg, resolve, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cfg.Dirs.Etcd()+"/member", 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.Join.Token, cfg.Join.AgentToken, cfg.Join.TokenFile, cfg.Join.AgentTokenFile = "", "", cfg.Dirs.Config+"/gone", cfg.Dirs.Config+"/gone-too"
	if _, err := Run(t.Context(), cfg, resolve, nil); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{cfg.Dirs.Token(), cfg.Dirs.AgentToken()} {
		if _, err := ReadToken(file); err != nil {
			t.Error(err)
		}
	}
}
