package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// machine is a server's configuration, all of whose keys and certificates are there.
func machine(t *testing.T, name string) config.Config {
	t.Helper()
	root := t.TempDir()
	cfg := config.Config{
		Role: config.Server,
		Dirs: paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc", Kubelet: root + "/kubelet"},
		Network: config.Network{Domain: "cluster.local", ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
		API:  config.API{Bind: netip.IPv4Unspecified(), Advertise: netip.MustParseAddr("192.0.2.1"), Port: 6443, KubeconfigPath: root + "/etc/kubeconfig.yaml", KubeconfigMode: 0o600},
		Node: config.Node{Name: name, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	}
	if _, err := pki.EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func ca(t *testing.T, cfg config.Config) []byte {
	t.Helper()
	data, err := os.ReadFile(cfg.Dirs.PKI() + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func tokenFor(t *testing.T, cfg config.Config) Token {
	t.Helper()
	pin, err := pki.OwnPin(cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	return NewToken(pin)
}

// serve answers under TLS with a pair of files.
func serve(t *testing.T, cert, key string, handler http.HandlerFunc) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return serveWith(t, pair, handler)
}

func serveAs(t *testing.T, cfg config.Config, handler http.HandlerFunc) string {
	return serve(t, cfg.Dirs.PKI()+"/apiserver.crt", cfg.Dirs.PKI()+"/apiserver.key", handler)
}

// admit lets everybody in.
func admit(t *testing.T, cfg config.Config) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		cert, err := pki.SignNode(cfg.Dirs, request.CSR, request.Node, 0)
		if err != nil {
			t.Error(err)
		}
		answer(w, http.StatusOK, Response{Cluster: Cluster{CA: ca(t, cfg), Servers: []string{"192.0.2.1:6443"}}, Cert: cert})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func request(t *testing.T) Request {
	t.Helper()
	csr, err := pki.NodeRequest(paths.Dirs{Data: t.TempDir()}, "boat-2")
	if err != nil {
		t.Fatal(err)
	}
	return Request{Node: "boat-2", Version: "v1.37.1+coracle.1", CSR: csr}
}

func TestJoin(t *testing.T) {
	ours, other := machine(t, "boat-1"), machine(t, "boat-9")
	good, plain := tokenFor(t, ours), NewToken("")
	refuse := func(code int, body any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer(w, code, body) }
	}
	kubelet := ours.Dirs.NodePKI() + "/kubelet-server-current.pem"
	for _, tc := range []struct {
		name   string
		server string
		token  Token
		want   string // in the error; none: it is let in
	}{
		{"with a pin", serveAs(t, ours, admit(t, ours)), good, ""},
		{"with a plain token", serveAs(t, ours, admit(t, ours)), plain, ""},
		{"wrong pin", serveAs(t, other, admit(t, other)), good, "another cluster than the token is for"},
		{"a kubelet in a server's place", serve(t, kubelet, kubelet, admit(t, ours)), plain, `not a coracle server, because its certificate is for "system:node:boat-1"`},
		{"a CA that is another's", serveAs(t, ours, admit(t, other)), plain, "a CA that is not its own"},
		{"no answer of ours", serveAs(t, ours, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }), good, "not a coracle server"},
		{"no such path", serveAs(t, ours, http.NotFound), good, "not a coracle server that machines can join"},
		{"no TLS", strings.Replace(plainServer(t), "http:", "https:", 1), good, "does not use TLS"},
		{"nobody", "https://127.0.0.1:1", good, "127.0.0.1:1 does not answer: connect: connection refused"},
		{"unknown token", serveAs(t, ours, refuse(401, map[string]string{"kind": "Status", "message": "Unauthorized"})), good,
			"does not accept the token: it is wrong, has expired or was deleted"},
		{"an agent's token", serveAs(t, ours, refuse(403, map[string]string{"kind": "Status", "message": "forbidden"})), good, "--role server"},
		{"a taken name", serveAs(t, ours, refuse(409, Refusal{Message: "node name boat-2 is taken"})), good, "refuses: node name boat-2 is taken"},
		{"our own 403", serveAs(t, ours, refuse(403, Refusal{Message: "not today"})), good, "refuses: not today"},
		{"another's clock", serveAs(t, ours, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(25*time.Hour).UTC().Format(http.TimeFormat))
			admit(t, ours)(w, r)
		}), good, "this machine's clock says"},
		{"clock in a refusal", serveAs(t, ours, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"] = nil
			answer(w, 400, Refusal{Message: "x", Time: time.Now().Add(-25 * time.Hour)})
		}), good, "this machine's clock says"},
		{"a redirect", serveAs(t, ours, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere", http.StatusFound)
		}), good, "refuses: Found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			response, err := Client{Server: tc.server, Token: tc.token}.Join(t.Context(), PathAgent, request(t))
			if tc.want == "" {
				if err != nil || len(response.Cert) == 0 {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), tc.token.Secret) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}

func plainServer(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}

// The token goes to nobody who is not believed.
func TestTokenIsKept(t *testing.T) {
	ours, other := machine(t, "boat-1"), machine(t, "boat-9")
	var asked atomic.Bool
	url := serveAs(t, other, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
	if _, err := (Client{Server: url, Token: tokenFor(t, ours)}).Join(t.Context(), PathAgent, request(t)); err == nil {
		t.Error("it was let in")
	}
	if asked.Load() {
		t.Error("the request was sent")
	}
}

// A machine that has joined believes its cluster's servers, whatever their address, and no others.
func TestCluster(t *testing.T) {
	ours, other := machine(t, "boat-1"), machine(t, "boat-9")
	handler := func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "system:coracle:node:boat-1" {
			t.Error("asked as nobody")
		}
		answer(w, http.StatusOK, Cluster{Settings: config.ClusterSettings{"cluster-domain": "boats"}})
	}
	good, bad := serveAs(t, ours, handler), serveAs(t, other, handler)
	certFile, keyFile := pki.NodeFiles(ours.Dirs)
	client := func(server string) Client {
		return Client{Server: server, CA: ca(t, ours), CertFile: certFile, KeyFile: keyFile}
	}
	if _, err := client(bad).Cluster(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("got %v", err)
	}
	cluster, from, err := AskAny(t.Context(), []string{"https://127.0.0.1:1", bad, good}, client)
	if err != nil || from != good || cluster.Settings["cluster-domain"] != "boats" {
		t.Errorf("got %v from %s, %v", cluster, from, err)
	}
	trusting := Client{Server: good, CertFile: certFile, KeyFile: keyFile}
	if _, err := trusting.Cluster(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be verified") {
		t.Errorf("without a CA: %v", err)
	}
	if _, _, err := AskAny(t.Context(), []string{"https://127.0.0.1:1", bad}, client); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("got %v", err)
	}
}

// Who starts before the server goes on trying, says so, and takes no early "who are you" for an answer.
func TestRetry(t *testing.T) {
	ours := machine(t, "boat-1")
	var step atomic.Int32
	url := serveAs(t, ours, func(w http.ResponseWriter, r *http.Request) {
		switch step.Add(1) {
		case 1:
			answer(w, http.StatusServiceUnavailable, Refusal{Message: "starting"})
		case 2:
			answer(w, http.StatusUnauthorized, map[string]string{"kind": "Status"})
		default:
			admit(t, ours)(w, r)
		}
	})
	var told []string
	entry := retrier{
		client: Client{Server: url, Token: tokenFor(t, ours)}, path: PathAgent, request: request(t), retry: true,
		waiting: func(err error) { told = append(told, err.Error()) },
	}
	if _, err := entry.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || !strings.Contains(told[0], "cannot answer yet: starting") {
		t.Errorf("told %q", told)
	}
}

// TestDeniedForGood: a denial is final after the grace period of a running server.
func TestDeniedForGood(t *testing.T) {
	t.Parallel()
	ours := machine(t, "boat-1")
	url := serveAs(t, ours, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusUnauthorized, map[string]string{"kind": "Status"})
	})
	ctx, cancel := context.WithTimeout(t.Context(), graceRunning+20*time.Second)
	defer cancel()
	r := retrier{client: Client{Server: url, Token: tokenFor(t, ours)}, path: PathAgent, request: request(t), retry: true, waiting: func(error) {}}
	began := time.Now()
	_, err := r.join(ctx)
	var denied *Denied
	if !errors.As(err, &denied) || time.Since(began) < graceRunning {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
}

// refused reports whether trying again is of no use.
func refused(err error) bool {
	var unreachable *Unreachable
	return err != nil && !errors.As(err, &unreachable)
}

func TestNoRetry(t *testing.T) {
	entry := retrier{client: Client{Server: "https://127.0.0.1:1", Token: NewToken("")}, path: PathAgent, request: request(t)}
	if _, err := entry.join(t.Context()); err == nil || refused(err) {
		t.Errorf("got %v", err)
	}
	entry.retry, entry.waiting = true, func(error) {}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := entry.join(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestMemory(t *testing.T) {
	file := t.TempDir() + "/cluster.json"
	if m, err := LoadMemory(file); err != nil || m.Joined {
		t.Errorf("without a file: %v, %v", m, err)
	}
	m := Memory{Cluster: Cluster{CA: []byte("x"), Servers: []string{"a:1"}, Settings: config.ClusterSettings{"disable": "dns"}}}
	if err := m.Save(file); err != nil {
		t.Fatal(err)
	}
	if err := MarkJoined(file); err != nil {
		t.Fatal(err)
	}
	back, err := LoadMemory(file)
	if err != nil || !back.Joined || back.Settings["disable"] != "dns" || back.Servers[0] != "a:1" {
		t.Errorf("got %v, %v", back, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadMemory(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}

// Nothing that listens and says nothing keeps a joiner for long.
func TestSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = Client{Server: "https://" + l.Addr().String(), Token: NewToken("")}.Cluster(ctx)
	if err == nil || refused(err) || time.Since(began) > 5*time.Second {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
}
