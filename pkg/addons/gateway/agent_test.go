package gateway

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// agentAt returns an agent whose server answers with what answer writes. Its gateway's process applies everything.
func agentAt(t *testing.T, answer *atomic.Pointer[http.HandlerFunc]) *Agent {
	t.Helper()
	dir := t.TempDir()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	t.Cleanup(server.Close)
	cert, key, err := certutil.GenerateSelfSignedCertKey("edge", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := &Agent{
		Server: server.Listener.Addr().String(), CA: file("ca", ca), Cert: file("cert", cert), Key: file("key", key),
		Node: kube.NewOwnNode("", "edge"), Dir: gateway.Dir(filepath.Join(dir, "gateway")), log: logrus.New(),
	}
	a.writer = &gateway.Writer{Files: a.Dir.Files()}
	if err := os.MkdirAll(string(a.Dir.Files()), 0o700); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", a.Dir.Socket())
	if err != nil {
		t.Fatal(err)
	}
	process := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })}
	go func() { _ = process.Serve(socket) }()
	t.Cleanup(func() { process.Close() })
	return a
}

// TestAgent: an agent serves what servers say, goes on with it while they say nothing, and serves nothing when they say so.
func TestAgent(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	a := agentAt(t, &answer)
	share := func(version string, ports ...uint16) http.HandlerFunc {
		s := gateway.Share{Version: version}
		for _, p := range ports {
			s.Config.Listeners = append(s.Config.Listeners, gateway.Listener{Port: p})
		}
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", string(rune('a'+len(ports))))
			_ = json.NewEncoder(w).Encode(s) // the client sees what is missing
		}
	}
	refuse := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }
	}
	for _, c := range []struct {
		what   string
		answer http.HandlerFunc
		fails  string
		ports  int
	}{
		{"nobody answers", refuse(503, ""), "503", 0},
		{"one port", share(version.Version, 80), "", 1},
		{"the servers are gone", refuse(502, "no"), "502", 1},
		{"nothing has changed", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "b" {
				t.Errorf("the tag is %q", r.Header.Get("If-None-Match"))
			}
			w.WriteHeader(http.StatusNotModified)
		}, "", 1},
		{"the rights are not there yet, as during an upgrade", refuse(403, `{"kind": "Status", "message": "forbidden", "reason": "Forbidden"}`), "403", 1},
		{"another version", share("v0.0.1", 80, 81, 82), "upgrade", 1},
		{"that version again", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "d" {
				t.Errorf("what cannot be used is asked for again, with tag %q", r.Header.Get("If-None-Match"))
			}
			w.WriteHeader(http.StatusNotModified)
		}, "upgrade", 1},
		{"two ports", share(version.Version, 80, 443), "", 2},
		{"nothing is served", share(version.Version), "", 0},
		{"again", share(version.Version, 80), "", 1},
		{"the label is gone", refuse(403, `{"message": "node edge is no gateway", "reason": "`+join.ReasonNoGateway+`"}`), "no gateway", 0},
		{"labelled again", share(version.Version, 80), "", 1},
		{"the node was removed from the cluster", refuse(401, `{"message": "node edge was removed", "reason": "`+join.ReasonRemoved+`"}`), "was removed", 0},
	} {
		answer.Store(&c.answer)
		err := a.take(t.Context())
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v", c.what, err)
		}
		a.settle(err)
		var config gateway.Config
		if data, err := os.ReadFile(a.Dir.Files().Config()); err == nil {
			if err := json.Unmarshal(data, &config); err != nil {
				t.Fatal(err)
			}
		}
		if len(config.Listeners) != c.ports {
			t.Errorf("%s: %d ports, want %d", c.what, len(config.Listeners), c.ports)
		}
	}
}

// TestAgentWithoutLabel: an agent that is no gateway any more, or whose Node was deleted, asks nobody, and removes what it served while it was one.
func TestAgentWithoutLabel(t *testing.T) {
	node := func(label string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{kube.GatewayLabel: label}}}
	}
	for what, now := range map[string]*corev1.Node{"label": node("false"), "deleted": nil} {
		t.Run(what, func(t *testing.T) {
			var answer atomic.Pointer[http.HandlerFunc]
			asked := make(chan struct{}, 1)
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
			})
			answer.Store(&handler)
			a := agentAt(t, &answer)
			if _, err := a.writer.Write(gateway.Config{LogRequests: true}, nil); err != nil { // of an earlier process
				t.Fatal(err)
			}
			a.Node.Set(node("true"))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- a.Run(ctx, func() {}) }()
			<-asked
			if _, err := os.Stat(a.Dir.Files().Config()); err != nil {
				t.Error("what was served is gone before a server has answered")
			}
			a.Node.Set(now)
			for {
				if _, err := os.Stat(a.Dir.Files().Config()); os.IsNotExist(err) {
					break
				}
				if t.Context().Err() != nil {
					t.Fatal("it is still served")
				}
			}
			cancel()
			if err := <-ended; err != nil || len(asked) > 0 {
				t.Errorf("%v, asked again %v", err, len(asked) > 0)
			}
		})
	}
}
