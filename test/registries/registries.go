// Package registries runs the CNCF's registry (test/registry) on hosts, for tests that pull from a real registry: with
// TLS and client certificates, passwords or a token server. Tests can read its access log.
package registries

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/modules"
)

// Options are the properties of a registry. The zero value listens on port 5000 with HTTP and allows all clients.
type Options struct {
	Port int // 5000 if zero
	// Storage is a directory of this machine. Registries that share it have the same images.
	Storage string
	// TLS signs the registry's certificate, which is for the host's address and for "localhost". Nil means plain HTTP.
	TLS *Authority
	// Clients signs the certificates that clients must present. Nil requires none.
	Clients *Authority
	// Users are names and passwords. Nil requires none, unless Tokens is set.
	Users map[string]string
	// Tokens issues the tokens that the registry requires. Nil requires none.
	Tokens *TokenServer
}

// Registry is a running registry.
type Registry struct {
	Addr    string // host:port, as in the names of its images
	URL     string // with the scheme
	Storage string

	t    testing.TB
	host *hosts.Host
	opts Options
	dir  string
	cmd  *exec.Cmd
}

// Start builds a registry and runs it on the host's address until the test ends.
func Start(t testing.TB, h *hosts.Host, opts Options) *Registry {
	t.Helper()
	if opts.Port == 0 {
		opts.Port = 5000
	}
	ip := "127.0.0.1"
	if h.IP.IsValid() {
		ip = h.IP.String()
	}
	r := &Registry{Addr: net.JoinHostPort(ip, strconv.Itoa(opts.Port)), Storage: opts.Storage, t: t, host: h, opts: opts, dir: t.TempDir()}
	if r.Storage == "" {
		r.Storage = filepath.Join(r.dir, "storage")
	}
	r.URL = "http://" + r.Addr
	if opts.TLS != nil {
		r.URL = "https://" + r.Addr
	}
	program := modules.Build(t, "registry")
	if opts.Users != nil {
		r.SetUsers(opts.Users)
	}
	r.run(program)
	return r
}

// run starts the program in the host's network and waits until it listens.
func (r *Registry) run(program string) {
	r.t.Helper()
	config, err := json.Marshal(r.config()) // JSON is YAML
	r.must(err)
	file := filepath.Join(r.dir, "config.yaml")
	r.must(os.WriteFile(file, config, 0o600))
	log, err := os.Create(r.log())
	r.must(err)
	defer log.Close()
	r.cmd = exec.Command(program, "serve", file)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OTEL_TRACES_EXPORTER=none"}
	r.must(hosts.On(r.host.PID(), r.cmd.Start))
	r.t.Cleanup(func() {
		r.Stop()
		if r.t.Failed() {
			said, _ := os.ReadFile(r.log())
			r.t.Logf("registry %s said:\n%.4000s", r.Addr, said)
		}
	})
	hosts.Eventually(r.t, 20*time.Second, func() error {
		conn, err := r.host.Dial(r.t.Context(), "tcp", r.Addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// config is the registry's configuration file.
func (r *Registry) config() map[string]any {
	http := map[string]any{"addr": r.Addr, "secret": "of-this-test"}
	if r.opts.TLS != nil {
		cert, key := r.opts.TLS.Sign(r.t, r.host.IP)
		tls := map[string]any{"certificate": r.write("tls.crt", cert), "key": r.write("tls.key", key)}
		if r.opts.Clients != nil {
			tls["clientcas"] = []string{r.write("clients.crt", r.opts.Clients.PEM)}
		}
		http["tls"] = tls
	}
	config := map[string]any{
		"version": "0.1", "http": http,
		"log":     map[string]any{"level": "warn"},
		"storage": map[string]any{"filesystem": map[string]any{"rootdirectory": r.Storage}, "delete": map[string]any{"enabled": true}},
	}
	switch {
	case r.opts.Tokens != nil:
		config["auth"] = map[string]any{"token": r.opts.Tokens.config(r)}
	case r.opts.Users != nil:
		config["auth"] = map[string]any{"htpasswd": map[string]any{"realm": "test", "path": r.passwords()}}
	}
	return config
}

// SetUsers replaces the names and passwords of a registry that has some, at once.
func (r *Registry) SetUsers(users map[string]string) {
	r.t.Helper()
	var text strings.Builder
	for name, password := range users {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		r.must(err)
		fmt.Fprintf(&text, "%s:%s\n", name, hash)
	}
	r.opts.Users = users
	r.must(os.WriteFile(r.passwords()+".new", []byte(text.String()), 0o600))
	r.must(os.Rename(r.passwords()+".new", r.passwords()))
}

// Stop ends the registry, as a crash would.
func (r *Registry) Stop() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

// Requests returns the lines of the access log so far that contain all of the words: method, path and status.
func (r *Registry) Requests(words ...string) []string {
	data, err := os.ReadFile(r.log())
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		missing := func(word string) bool { return !strings.Contains(line, word) }
		if strings.Contains(line, ` HTTP/`) && !slices.ContainsFunc(words, missing) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func (r *Registry) log() string       { return filepath.Join(r.dir, "log") }
func (r *Registry) passwords() string { return filepath.Join(r.dir, "htpasswd") }

func (r *Registry) write(name string, data []byte) string {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	r.must(os.WriteFile(file, data, 0o600))
	return file
}

func (r *Registry) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("registry %s: %v", r.Addr, err)
	}
}
