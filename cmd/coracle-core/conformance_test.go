package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// TestBrokenPipe: the conformance tests remove what they have made although nobody reads their output any more. The test is also the child
// whose output nobody reads.
func TestBrokenPipe(t *testing.T) {
	const variable = "CORACLE_TEST_KUBECONFIG"
	if kubeconfig := os.Getenv(variable); kubeconfig != "" {
		c := conformanceCommand()
		c.SetArgs([]string{"--kubeconfig", kubeconfig, "--focus", "x", "--output", filepath.Dir(kubeconfig)})
		c.SetOut(os.Stdout)
		c.SetErr(os.Stdout)
		if c.ExecuteContext(t.Context()) == nil {
			t.Error("the tests have run")
		}
		return
	}
	var removed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const ns = `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "conformance", "uid": "1"}}`
		switch path := r.URL.Path; {
		case path == "/version":
			_, _ = io.WriteString(w, `{"gitVersion": "v1.37.1"}`)
		case path == "/api/v1/nodes":
			_, _ = io.WriteString(w, `{"kind": "NodeList", "apiVersion": "v1"}`)
		case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
			_, _ = io.WriteString(w, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`)
		case r.Method == http.MethodDelete && path == "/api/v1/namespaces/conformance":
			removed.Store(true)
			_, _ = io.WriteString(w, ns)
		case r.Method == http.MethodPost && path == "/api/v1/namespaces", path == "/api/v1/namespaces/conformance" && !removed.Load():
			_, _ = io.WriteString(w, ns)
		default: // there is no account for the pod, so the run ends, and says that it removes the namespace
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters": [{"name": "a", "cluster": {"server": "` + server.URL + `"}}], "contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	itself, err := os.Executable() // kubectl's completion, which another test plays, replaces os.Args
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), itself, "-test.run=^TestBrokenPipe$")
	child.Env = append(os.Environ(), variable+"="+kubeconfig)
	child.Stdout = write
	child.Stderr = t.Output()
	if err := child.Run(); !removed.Load() {
		t.Errorf("it left its namespace, and ended with %v", err)
	}
}

// TestHangup: a command that must tidy up does so when its terminal is closed, but not under nohup.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		defer signal.Ignore(syscall.SIGHUP)
	}
	caught := make(chan os.Signal, 1)
	for _, nohup := range []bool{false, true} {
		signal.Notify(caught, syscall.SIGHUP) // Reset alone leaves it ignored where it was
		signal.Stop(caught)
		sent, want := []syscall.Signal{syscall.SIGHUP}, "hangup"
		if nohup {
			signal.Ignore(syscall.SIGHUP)
			sent, want = append(sent, syscall.SIGTERM), "terminated"
		}
		c := interruptible(&cobra.Command{RunE: func(c *cobra.Command, _ []string) error {
			for _, s := range sent {
				if err := syscall.Kill(os.Getpid(), s); err != nil {
					return err
				}
			}
			<-c.Context().Done()
			return context.Cause(c.Context())
		}}, syscall.SIGHUP)
		c.SetArgs([]string{})
		c.SetOut(t.Output())
		c.SetErr(t.Output())
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nohup: %v; it ended by %v, want %s", nohup, err, want)
		}
	}
	signal.Notify(caught, syscall.SIGHUP)
	signal.Stop(caught)
}
