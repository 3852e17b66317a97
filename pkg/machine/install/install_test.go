package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// initSystem is one that keeps its services in memory and their units in a directory.
type initSystem struct {
	initsystem.Manager
	root    string
	running map[string]int // how often it was started
	enabled map[string]bool
	fail    string // what fails, once
	coming  bool   // its services are not ready yet
}

func (f *initSystem) Name() string { return "systemd" }

func (f *initSystem) File(name string) string { return "/etc/systemd/system/" + name + ".service" }

func (f *initSystem) Install(_ context.Context, u initsystem.Unit) error {
	return os.WriteFile(filepath.Join(f.root, f.File(u.Name)), fmt.Appendf(nil, "%+v", u), 0o644)
}

func (f *initSystem) Reload(context.Context, string) error { return nil }

func (f *initSystem) Enable(_ context.Context, name string) error {
	f.enabled[name] = true
	return nil
}

func (f *initSystem) Disable(_ context.Context, name string) error {
	delete(f.enabled, name)
	return nil
}

func (f *initSystem) Start(_ context.Context, name string) error {
	f.running[name]++
	os.MkdirAll(filepath.Join(f.root, "/var/lib/coracle/server"), 0o755)
	return f.failing("start")
}

func (f *initSystem) Restart(ctx context.Context, name string) error {
	f.running[name]++
	return f.failing("restart")
}

func (f *initSystem) failing(what string) error {
	if f.fail == what {
		f.fail = ""
		return errors.New(what + " fails")
	}
	return nil
}

func (f *initSystem) Stop(_ context.Context, name string) error {
	delete(f.running, name)
	return nil
}

func (f *initSystem) State(_ context.Context, name string) (initsystem.State, error) {
	s := initsystem.State{Enabled: f.enabled[name], Running: initsystem.Stopped}
	if f.running[name] > 0 {
		s.Running = initsystem.Ready
	}
	if f.coming {
		s.Running = initsystem.Starting
	}
	return s, nil
}

// world is a machine in a directory.
type world struct {
	*Installer
	init *initSystem
	want Spec
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"usr/local/bin", "etc/systemd/system", "var/lib", "run"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(t.TempDir(), "download")
	if err := os.WriteFile(self, []byte("version 1"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := &initSystem{root: root, running: map[string]int{}, enabled: map[string]bool{}}
	w := &world{init: f, Installer: &Installer{Store: Store{Root: root}, Manager: f, Look: func(name string) (string, error) {
		if name == "bash" || name == "crictl" {
			return "/usr/bin/" + name, nil
		}
		return "", errors.New("not found")
	}}}
	w.Discard = func(_ context.Context, r Record, data bool) error {
		if data {
			return os.RemoveAll(filepath.Join(root, r.Dirs.Data))
		}
		return nil
	}
	w.want = Spec{Service: "coracle", Role: config.Server, Environment: []string{"CORACLE_TOKEN=secret"}, Config: config.Config{Dirs: paths.Default()},
		BinDir: "/usr/local/bin", Self: self, Version: "v1", Enable: true, Start: true, Wait: time.Minute}
	return w
}

// tree lists everything below the root with what it holds.
func (w *world) tree(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(w.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%s %s", strings.TrimPrefix(path, w.Root), info.Mode())
		if target, err := os.Readlink(path); err == nil {
			text += " -> " + target
		} else if data, err := os.ReadFile(path); err == nil {
			text += " " + string(data)
		}
		out = append(out, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same fails the test unless the machine is as it was.
func (w *world) same(t *testing.T, before []string) {
	t.Helper()
	after := w.tree(t)
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("new: %s", line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("gone: %s", line)
		}
	}
}

var allSteps = []string{"record", "executable", "links", "variables", "completion", "service", "enable", "start", "ready", "complete"}

// TestFailures fails each step in turn, of a first installation and of one that changes another.
func TestFailures(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, step := range allSteps {
			t.Run(fmt.Sprintf("%s first=%t", step, first), func(t *testing.T) {
				w := newWorld(t)
				started := 0
				if !first {
					if _, err := w.Install(t.Context(), w.want); err != nil {
						t.Fatal(err)
					}
					started = w.init.running["coracle"]
					w.want.Args = []string{"--debug"}
					w.want.Environment = nil
					w.Upgrade = func(context.Context, Record, string) error { return nil }
				}
				before := w.tree(t)
				w.step = func(name string) error {
					if name == step {
						return errors.New("the disk is full")
					}
					return nil
				}
				_, err := w.Install(t.Context(), w.want)
				if err == nil || !strings.Contains(err.Error(), "the disk is full") {
					t.Fatalf("%v", err)
				}
				w.same(t, before)
				if first && (len(w.init.running) > 0 || len(w.init.enabled) > 0) {
					t.Errorf("left with the init system: %v %v", w.init.running, w.init.enabled)
				}
				if !first && (w.init.running["coracle"] < started || !w.init.enabled["coracle"]) {
					t.Errorf("what ran and was enabled before: %v %v", w.init.running, w.init.enabled)
				}
			})
		}
	}
}

// TestStartFails: what a service made before it failed is gone too, but not what was there before.
func TestStartFails(t *testing.T) {
	for _, data := range []bool{false, true} {
		w := newWorld(t)
		if data {
			file := filepath.Join(w.Root, "var/lib/coracle/server/etcd")
			os.MkdirAll(filepath.Dir(file), 0o755)
			os.WriteFile(file, []byte("data"), 0o600)
		}
		before := w.tree(t)
		w.init.fail = "start"
		if _, err := w.Install(t.Context(), w.want); err == nil || !strings.Contains(err.Error(), "start fails\ncoracle was not installed; nothing of it is left") {
			t.Errorf("%v", err)
		}
		w.same(t, before)
	}
}

func TestInstall(t *testing.T) {
	w := newWorld(t)
	before := w.tree(t)
	done, err := w.Install(t.Context(), w.want)
	if err != nil || !done.Changed || !done.Started || !slices.Equal(done.Taken, []string{"/usr/bin/crictl"}) {
		t.Fatalf("%+v, %v", done, err)
	}
	for path, want := range map[string]string{
		"usr/local/bin/kubectl": "version 1", "usr/local/bin/coracle-uninstall": "version 1",
		"etc/coracle/coracle.env":                                        "CORACLE_TOKEN=\"secret\"\n",
		"usr/local/share/bash-completion/completions/kubectl":            ". <(kubectl completion bash)\n",
		"usr/local/share/bash-completion/completions/coracle":            ". <(coracle completion bash)\n",
		"usr/local/share/fish/vendor_completions.d/coracle.fish":         "",
		"usr/local/share/bash-completion/completions/coracle-completion": "",
	} {
		if data, _ := os.ReadFile(filepath.Join(w.Root, path)); string(data) != want {
			t.Errorf("%s holds %q, want %q", path, data, want)
		}
	}
	if info, err := os.Stat(filepath.Join(w.Root, "etc/coracle/coracle.env")); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode of the variables: %v, %v", info, err)
	}
	installed := w.tree(t)
	if done, err := w.Install(t.Context(), w.want); err != nil || done.Changed || done.Started {
		t.Errorf("a second time: %+v, %v", done, err)
	}
	w.same(t, installed)
	if got := w.init.running["coracle"]; got != 1 {
		t.Errorf("started %d times", got)
	}
	r, ok, err := w.Load("coracle")
	if !ok || err != nil {
		t.Fatal(err)
	}
	if left, err := w.Uninstall(t.Context(), r, false); err != nil || left != nil {
		t.Errorf("left %q, %v", left, err)
	}
	w.same(t, before)
	if len(w.init.enabled)+len(w.init.running) > 0 {
		t.Errorf("left with the init system: %v %v", w.init.running, w.init.enabled)
	}
}

// TestStarting: it waits for a service that is starting already, and fails if that does not become ready.
func TestStarting(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	w.init.coming = true
	for _, want := range []error{nil, errors.New("the node is not Ready")} {
		waited := 0
		w.Ready = func(context.Context) error { waited++; return want }
		done, err := w.Install(t.Context(), w.want)
		if !errors.Is(err, want) || waited != 1 || err == nil && (!done.Started || done.Changed) {
			t.Errorf("waited %d times: %+v, %v", waited, done, err)
		}
	}
	if got := w.init.running["coracle"]; got != 1 {
		t.Errorf("started %d times", got)
	}
}

// TestUpgrade: another executable goes through package upgrade, and nothing else is started.
func TestUpgrade(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.want.Self, []byte("version 2"), 0o755); err != nil {
		t.Fatal(err)
	}
	calls := 0
	w.Upgrade = func(_ context.Context, r Record, file string) error {
		calls++
		data, _ := os.ReadFile(file)
		return os.WriteFile(filepath.Join(w.Root, r.Binary), data, 0o755)
	}
	done, err := w.Install(t.Context(), w.want)
	if err != nil || !done.Upgraded || done.Started || calls != 1 || w.init.running["coracle"] != 1 {
		t.Errorf("%+v, %v, %d calls, started %d times", done, err, calls, w.init.running["coracle"])
	}
	failed := errors.New("rolled back")
	os.WriteFile(w.want.Self, []byte("version 3"), 0o755)
	w.Upgrade = func(context.Context, Record, string) error { return failed }
	if _, err := w.Install(t.Context(), w.want); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	r, _, _ := w.Load("coracle")
	if left, err := w.Uninstall(t.Context(), r, false); err != nil || left != nil {
		t.Errorf("after an upgrade: left %q, %v", left, err)
	}
}

// killBefore installs until a step begins, as an installer that is killed there.
func (w *world) killBefore(t *testing.T, step string) {
	defer func() {
		_ = recover()
		w.step = nil
	}()
	w.step = func(name string) error {
		if name == step {
			panic("killed")
		}
		return nil
	}
	_, _ = w.Install(t.Context(), w.want)
}

// TestInterrupted: an installation that was killed is cleaned up by the next one.
func TestInterrupted(t *testing.T) {
	for _, at := range allSteps[1:] {
		w := newWorld(t)
		before := w.tree(t)
		w.killBefore(t, at)
		if _, err := w.Install(t.Context(), w.want); err != nil {
			t.Fatalf("after %s: %v", at, err)
		}
		r, _, _ := w.Load("coracle")
		if left, err := w.Uninstall(t.Context(), r, false); err != nil || left != nil {
			t.Errorf("after %s: left %q, %v", at, left, err)
		}
		w.same(t, before)
	}
}

// TestInterruptedRunsItself: the executable that an interrupted installation has put there can be what installs again.
func TestInterruptedRunsItself(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	r, _, _ := w.Load("coracle")
	r.Complete = false
	if err := w.save(r); err != nil {
		t.Fatal(err)
	}
	w.want.Self = filepath.Join(w.Root, r.Binary)
	_, err := w.Install(t.Context(), w.want)
	if same, errSame := w.sameFile("/proc/self/exe", r.Binary); err != nil || errSame != nil || !same {
		t.Errorf("%v; the program that runs is installed: %t, %v", err, same, errSame)
	}
}

// TestHalt: the service of a data directory is stopped, and no other; that needs neither a service nor a record that can be read.
func TestHalt(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/srv/other", w.want.Config.Dirs.Data} {
		if err := w.Halt(t.Context(), dir); err != nil || (w.init.running["coracle"] > 0) != (dir == "/srv/other") {
			t.Errorf("%s: %v, running %v", dir, err, w.init.running)
		}
	}
	if err := os.WriteFile(w.path("coracle"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Halt(t.Context(), w.want.Config.Dirs.Data); err != nil {
		t.Error(err)
	}
}

// TestChangedFiles: what somebody changed since is named and left, and so is what others put there.
func TestChangedFiles(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	env, note := filepath.Join(w.Root, "etc/coracle/coracle.env"), filepath.Join(w.Root, "etc/coracle/config.yaml")
	os.WriteFile(env, []byte("CORACLE_DEBUG=1\n"), 0o600)
	os.WriteFile(note, []byte("debug: true\n"), 0o600)
	link := filepath.Join(w.Root, "usr/local/bin/kubectl")
	os.Remove(link)
	os.Symlink("/opt/kubectl", link)
	r, _, _ := w.Load("coracle")
	left, err := w.Uninstall(t.Context(), r, true)
	if err != nil || !slices.Equal(left, []string{"/etc/coracle/coracle.env"}) {
		t.Errorf("left %q, %v", left, err)
	}
	for _, path := range []string{env, note, link, filepath.Join(w.Root, "var/lib/coracle/server")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestSeveral: services share the executable and the links, and the last one takes them along.
func TestSeveral(t *testing.T) {
	w := newWorld(t)
	before := w.tree(t)
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	other := w.want
	other.Service = "coracle-lab"
	if _, err := w.Install(t.Context(), other); err == nil || !strings.Contains(err.Error(), "uses the same directories") {
		t.Errorf("the same directories: %v", err)
	}
	other.Config.Dirs = paths.Dirs{Data: "/var/lib/lab", Run: "/run/lab", Config: "/etc/coracle", Kubelet: "/var/lib/kubelet-lab"}
	if _, err := w.Install(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"coracle", "coracle-lab"} {
		r, _, _ := w.Load(name)
		if _, err := os.Stat(filepath.Join(w.Root, "usr/local/bin/kubectl")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := w.Uninstall(t.Context(), r, false); err != nil || left != nil {
			t.Errorf("%s: left %q, %v", name, left, err)
		}
	}
	w.same(t, before)
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"another role", func(w *Spec) { w.Role = config.Agent }, "is installed as a server"},
		{"another data directory", func(w *Spec) { w.Config.Dirs.Data = "/srv/coracle" }, "cannot be changed to /srv/coracle"},
		{"another place", func(w *Spec) { w.BinDir = "/opt/bin" }, "give --bin-dir /usr/local/bin"},
		{"the agent's service", func(w *Spec) { w.Service, w.Role = "coracle-agent", config.Agent }, "is installed as a server already, by the service coracle,"},
	}
	for _, tt := range tests {
		w := newWorld(t)
		if _, err := w.Install(t.Context(), w.want); err != nil {
			t.Fatal(err)
		}
		before := w.tree(t)
		tt.change(&w.want)
		if _, err := w.Install(t.Context(), w.want); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		w.same(t, before)
	}
}

// TestForeignUnit: a service of that name that somebody else made is not replaced.
func TestForeignUnit(t *testing.T) {
	w := newWorld(t)
	os.WriteFile(w.at(w.init.File("coracle")), []byte("somebody's"), 0o644)
	before := w.tree(t)
	if _, err := w.Install(t.Context(), w.want); err == nil || !strings.Contains(err.Error(), "coracle install did not write it") {
		t.Errorf("%v", err)
	}
	w.same(t, before)
}

func TestHideTokens(t *testing.T) {
	tests := []struct{ args, rest, variables string }{
		{"", "", ""},
		{"--debug --token a --server b", "--debug --server b", "CORACLE_TOKEN=a"},
		{"--token=a --agent-token=b", "", "CORACLE_TOKEN=a CORACLE_AGENT_TOKEN=b"},
		{"-t a -s b", "-s b", "CORACLE_TOKEN=a"},
		{"-ta --token-file x --tls-san=t", "--token-file x --tls-san=t", "CORACLE_TOKEN=a"},
		{"--token", "--token", ""},
	}
	for _, tt := range tests {
		rest, variables := HideTokens(strings.Fields(tt.args))
		if got := strings.Join(rest, " "); got != tt.rest || strings.Join(variables, " ") != tt.variables {
			t.Errorf("%s: %q and %q", tt.args, rest, variables)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := Environment([]string{"PATH=/bin", "CORACLE_TOKEN=a", "CORACLE_DEBUG=", "CORACLE_BIN=x", "https_proxy=p", "HOME=/root"})
	if want := []string{"CORACLE_TOKEN=a", "https_proxy=p"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
