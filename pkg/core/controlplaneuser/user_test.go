package controlplaneuser

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// server returns the configuration of a server with directories of the test's, which every user can search.
func server(t *testing.T) config.Config {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root changes owners")
	}
	root, err := os.MkdirTemp("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := errors.Join(os.Chmod(root, 0o755), os.Mkdir(filepath.Join(root, "run"), 0o755)); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(root, name) }
	cfg := config.Config{Role: config.Server, Dirs: paths.Dirs{Data: in("data"), Run: in("run"), Config: in("etc")}}
	cfg.API.Port = 6443
	put(t, filepath.Join(cfg.Dirs.PKI(), "ca.key"), "key")
	put(t, filepath.Join(cfg.Dirs.PKI(), "etcd", "peer.key"), "peer")
	put(t, cfg.Dirs.ServerConfig("admin.kubeconfig"), "key: "+filepath.Join(cfg.Dirs.PKI(), "admin.key"))
	return cfg
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func owner(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// readable reads a file as the control plane's user.
func readable(path string) (text string, err error) {
	err = as(ID, func() error {
		data, err := os.ReadFile(path)
		text = string(data)
		return err
	})
	return text, err
}

func prepared(t *testing.T, cfg *config.Config) *Copies {
	t.Helper()
	if cfg.ControlPlane = Choose(*cfg); cfg.ControlPlane.User != ID {
		t.Fatal(cfg.ControlPlane.AsRoot)
	}
	c := NewCopies(*cfg, Front{Joined: func() error { return nil }, Named: func(string) []string { return nil },
		Failed: func(err error) { t.Log(err) }})
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCopies: the user reads what it needs of root's files, and root's files stay root's.
func TestCopies(t *testing.T) {
	cfg := server(t)
	cfg.API.AuditPolicy = filepath.Join(cfg.Dirs.Config, "audit.yaml")
	put(t, cfg.API.AuditPolicy, "policy")
	put(t, filepath.Join(cfg.Dirs.Data, "manifests", "sub", "one.yaml"), "one")
	c := prepared(t, &cfg)
	view := View(cfg)
	for path, want := range map[string]string{
		filepath.Join(view.Dirs.PKI(), "etcd", "peer.key"):            "peer",
		view.Dirs.ServerConfig("admin.kubeconfig"):                    "key: " + filepath.Join(view.Dirs.PKI(), "admin.key"),
		view.API.AuditPolicy:                                          "policy",
		filepath.Join(view.Dirs.ManifestsToRead(), "sub", "one.yaml"): "one",
	} {
		if got, err := readable(path); got != want || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	key := filepath.Join(cfg.Dirs.PKI(), "ca.key")
	if _, err := readable(key); !errors.Is(err, os.ErrPermission) || owner(t, key) != 0 {
		t.Errorf("root's own key: %v", err)
	}
	if err := as(ID, func() error { return os.WriteFile(filepath.Join(view.Dirs.PKI(), "ca.crt"), nil, 0o600) }); err == nil {
		t.Error("the user can add keys")
	}

	id, _ := DirID(cfg.Dirs.Manifests())
	if got, err := DirID(view.Dirs.ManifestsToRead()); got != id || err != nil {
		t.Errorf("the copy is %q instead of %q: %v", got, id, err)
	}
	put(t, filepath.Join(cfg.Dirs.Data, "manifests", "two.yaml"), "two")
	if err := os.RemoveAll(filepath.Join(cfg.Dirs.Data, "manifests", "sub")); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
	if got, err := readable(filepath.Join(view.Dirs.ManifestsToRead(), "two.yaml")); got != "two" {
		t.Error("a new file:", err)
	}
	if _, err := readable(filepath.Join(view.Dirs.ManifestsToRead(), "sub", "one.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a removed file:", err)
	}
}

// TestLinks: root follows no link that the user has made.
func TestLinks(t *testing.T) {
	cfg := server(t)
	prepared(t, &cfg)
	secret := filepath.Join(cfg.Dirs.Config, "secret")
	put(t, secret, "root's")
	former := filepath.Join(cfg.Dirs.Data, "server", "own-nodes.json")
	if got, err := os.Readlink(former); got != "control-plane/own-nodes.json" {
		t.Errorf("for earlier versions there is %q: %v", got, err)
	}
	link, member := cfg.Dirs.ControlPlane("own-nodes.json"), filepath.Join(cfg.Dirs.Etcd(), "member")
	ofRoot := filepath.Join(cfg.Dirs.Etcd(), "of-root")
	if err := errors.Join(os.Symlink(secret, link), os.Symlink(cfg.Dirs.Config, member), os.Symlink(secret, ofRoot),
		os.Lchown(link, ID, ID), os.Lchown(member, ID, ID)); err != nil {
		t.Fatal(err)
	}
	prepared(t, &cfg)
	if owner(t, secret) != 0 || owner(t, cfg.Dirs.Config) != 0 {
		t.Error("root gave away what a link leads to")
	}
	if owner(t, link) != ID || owner(t, member) != ID || owner(t, ofRoot) != 0 {
		t.Error("links changed their owner")
	}
}

// TestMarks: what the control plane tells root is taken once.
func TestMarks(t *testing.T) {
	cfg := server(t)
	put(t, cfg.Dirs.ResetRequest(), "{}")
	c := prepared(t, &cfg)
	joined := 0
	c.front.Joined = func() error { joined++; return nil }
	view := View(cfg)
	if !Pending(view.Dirs, view.Dirs.ResetRequest()) {
		t.Fatal("the request is not seen")
	}
	if err := errors.Join(Finish(view.Dirs, view.Dirs.ResetRequest()), os.WriteFile(view.Dirs.Joined(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if Pending(view.Dirs, view.Dirs.ResetRequest()) {
		t.Error("the request is not done")
	}
	for range 2 {
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	var adopted []string
	c.front.Adopt = func(authorities []byte) error { adopted = append(adopted, string(authorities)); return nil }
	put(t, filepath.Join(cfg.Dirs.Config, "secret"), "secret")
	for _, make := range []func(mark string) error{
		func(mark string) error { return os.WriteFile(mark, []byte("files"), 0o600) },
		func(mark string) error { return os.Symlink(filepath.Join(cfg.Dirs.Config, "secret"), mark) },
		func(mark string) error { return syscall.Mkfifo(mark, 0o600) },
		func(mark string) error { return os.Mkdir(mark, 0o700) },
	} {
		if err := make(cfg.Dirs.Authorities()); err != nil {
			t.Fatal(err)
		}
		_ = c.Sync() // it tells what is wrong with the mark
		if paths.Exists(cfg.Dirs.Authorities()) {
			t.Error("the mark is there still")
		}
	}
	if len(adopted) != 1 || adopted[0] != "files" {
		t.Errorf("root adopted %q", adopted)
	}
	for _, mark := range []string{cfg.Dirs.Joined(), cfg.Dirs.Done(cfg.Dirs.RekeyRequest()), cfg.Dirs.State("control-plane")} {
		put(t, filepath.Join(mark, "in-the-way"), "") // the user can make a directory instead
	}
	c.front.Joined = func() error { return nil }
	if err := c.Prepare(); err != nil {
		t.Error(err)
	}
	if paths.Exists(cfg.Dirs.ResetRequest()) || paths.Exists(view.Dirs.ResetRequest()) || joined != 1 || c.marks() != "" {
		t.Errorf("joined %d times, marks %q", joined, c.marks())
	}
}

// TestCannotChangeUsers: without a capability that it takes to change users, the control plane stays root's.
func TestCannotChangeUsers(t *testing.T) {
	cfg := server(t)
	chosen := make(chan config.ControlPlane)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1 << unix.CAP_SETUID
		if err = errors.Join(err, unix.Capset(&header, &data[0])); err != nil {
			t.Error(err)
		}
		chosen <- Choose(cfg)
	}()
	if got := <-chosen; got.User != 0 || !strings.Contains(got.AsRoot, "CAP_SETUID") {
		t.Errorf("%+v", got)
	}
}

// TestNamed: the files that registries.yaml names have copies as long as it names them.
func TestNamed(t *testing.T) {
	cfg := server(t)
	key, other := filepath.Join(cfg.Dirs.Config, "tls.key"), filepath.Join(cfg.Dirs.Config, "ca.pem")
	put(t, key, "one")
	put(t, other, "ca")
	c := prepared(t, &cfg)
	at := View(cfg).Dirs.CopyOf
	for _, step := range []struct {
		named     []string
		key       string // "" has no copy
		withOther bool
	}{
		{[]string{key, other}, "one", true}, {[]string{key}, "two", false}, {nil, "", false},
	} {
		c.front.Named = func(string) []string { return step.named }
		put(t, key, step.key)
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
		if got, err := readable(at(key)); got != step.key || (err == nil) != (step.key != "") {
			t.Errorf("named are %s: the copy is %q: %v", step.named, got, err)
		}
		if paths.Exists(at(other)) != step.withOther {
			t.Errorf("named are %s: the other copy exists: %t", step.named, !step.withOther)
		}
	}
}

// TestAsRoot: what only root can do keeps the control plane root's.
func TestAsRoot(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"port 443": func(c *config.Config) { c.API.Port = 443 },
		"audit-log-path": func(c *config.Config) {
			c.Args = map[string][]string{"kube-apiserver": {"audit-log-path=/var/log/audit.log"}}
		},
		"only root can open": func(c *config.Config) {
			c.API.AdmissionConfig = filepath.Join(c.Dirs.Config, "admission.yaml")
			put(t, c.API.AdmissionConfig, "kubeConfigFile: "+filepath.Join(c.Dirs.PKI(), "ca.key"))
		},
		"without its directory": func(c *config.Config) {
			c.API.AdmissionConfig = filepath.Join(c.Dirs.Config, "admission.yaml")
			put(t, c.API.AdmissionConfig, "path: security.yaml")
			put(t, filepath.Join(c.Dirs.Config, "security.yaml"), "{}")
		},
		"kms.sock, which only root can open": func(c *config.Config) {
			socket := filepath.Join(c.Dirs.Run, "kms.sock")
			listen(t, socket, 0o755)
			c.API.EncryptionConfig = filepath.Join(c.Dirs.Config, "encryption.yaml")
			put(t, c.API.EncryptionConfig, "endpoint: unix://"+socket)
		},
		"not there yet": func(c *config.Config) { c.Datastore.Endpoints = []string{"unix:///run/none.sock"} },
		"cannot reach": func(c *config.Config) {
			if err := os.Chmod(c.Dirs.Data, 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		cfg := server(t)
		change(&cfg)
		if got := Choose(cfg); got.User != 0 || !strings.Contains(got.AsRoot, name) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestOpenSocket: a datastore's socket that everybody may open keeps the control plane from no user.
func TestOpenSocket(t *testing.T) {
	cfg := server(t)
	socket := filepath.Join(cfg.Dirs.Run, "kine.sock")
	listen(t, socket, 0o666)
	cfg.Datastore.Endpoints = []string{"unix://" + socket}
	if got := Choose(cfg); got.User != ID {
		t.Error(got.AsRoot)
	}
}

func listen(t *testing.T, socket string, mode os.FileMode) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(socket, mode); err != nil {
		t.Fatal(err)
	}
}
