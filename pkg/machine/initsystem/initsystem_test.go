package initsystem

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/test/golden"
)

// awkward is a service whose arguments hold everything that init systems and shells read something into.
func awkward() Unit {
	return Unit{
		Name:        "coracle-edge",
		Description: "Kubernetes, 100 % of it (coracle server)",
		Exec: []string{"/opt/my tools/coracle", "server", "--node-label", "a=b c", "--tls-san=%h", "it's", `say "$HOME" \n`, "", "`id`",
			"--kubelet-arg=v=2;rm"},
		Before:      []string{"/opt/my tools/coracle", "upgrade", "guard"},
		Ready:       []string{"/opt/my tools/coracle", "wait", "--quiet"},
		Environment: "/etc/coracle/coracle-edge.env",
		Mounts:      []string{"/var/lib/coracle", "/mnt/a b"},
	}
}

func TestTexts(t *testing.T) {
	plain := Unit{Name: "coracle", Description: "Kubernetes (coracle server)", Exec: []string{"/usr/local/bin/coracle", "server"}}
	golden.Check(t, "testdata/coracle.service", systemdUnit(plain))
	golden.Check(t, "testdata/awkward.service", systemdUnit(awkward()))
	golden.Check(t, "testdata/coracle.initd", openRCScript(plain))
	golden.Check(t, "testdata/awkward.initd", openRCScript(awkward()))
}

// TestScriptArguments evaluates the script as openrc-run does, and looks at what arrives at the program.
func TestScriptArguments(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(openRCScript(awkward())), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(sh, "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(sh, "-c", `. "$1"; eval "printf '%s\\0' $command_args"`, "sh", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, args, _ := strings.Cut(string(out), "\x00"+awkward().Exec[0]+"\x00") // after the shell's own
	if got, want := strings.TrimSuffix(args, "\x00"), strings.Join(awkward().Exec[1:], "\x00"); got != want {
		t.Errorf("the program gets\n%q, want\n%q", got, want)
	}
}

// TestEnvironment sources the file, as the OpenRC script does; test/install has systemd read one.
func TestEnvironment(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	want := []string{`CORACLE_A=a b`, `CORACLE_B=it's "$HOME" \n ` + "`id`", "CORACLE_C=", "CORACLE_D=x=y#z"}
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, Environment(append([]string{"CORACLE_A=old"}, want...)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sh, "-c", `set -a; . "$1"; env -0`, "sh", file)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, w := range want {
		if !slices.Contains(strings.Split(string(out), "\x00"), w) {
			t.Errorf("%q is not in the environment %q", w, out)
		}
	}
}

// TestReadEnvironment: what people write is kept as systemd and a shell understand it, or is named, without values.
func TestReadEnvironment(t *testing.T) {
	want := []string{`CORACLE_B=it's "$HOME" \n ` + "`id`", "CORACLE_C=", "CORACLE_D=x=y#z"}
	byHand := "# proxy\n\n  HTTP_PROXY='http://a b$c'\r\nCORACLE_URL=https://[fd00::1]:6443\nCORACLE_E="
	got, err := ReadEnvironment(append(Environment(want), byHand...))
	if want = append(want, "HTTP_PROXY=http://a b$c", "CORACLE_URL=https://[fd00::1]:6443", "CORACLE_E="); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, line := range []string{"export A=secret", "A=secret # b", `A="secret`, `A="secret"b`, `A="secret$HOME"`, "A = secret", "A=secret b", "secret"} {
		if got, err := ReadEnvironment([]byte("B=1\n" + line)); err == nil || !strings.Contains(err.Error(), "line 2") || strings.Contains(err.Error(), "=secret") {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}

func TestDetect(t *testing.T) {
	tests := []struct {
		name     string
		dirs     []string
		programs []string
		want     string
	}{
		{"systemd runs", []string{"/run/systemd/system"}, []string{"systemctl"}, "systemd"},
		{"systemd runs, OpenRC is installed too", []string{"/run/systemd/system"}, []string{"systemctl", "openrc-run", "rc-service"}, "systemd"},
		{"OpenRC", []string{"/run/openrc/softlevel"}, []string{"openrc-run", "rc-service"}, "openrc"},
		{"an image with systemd", nil, []string{"systemctl"}, "systemd"},
		{"neither", nil, []string{"initctl"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range tt.dirs {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			m, err := detect(root, func(name string) (string, error) {
				if slices.Contains(tt.programs, name) {
					return "/bin/" + name, nil
				}
				return "", exec.ErrNotFound
			})
			switch {
			case tt.want == "" && !errors.Is(err, ErrNone):
				t.Errorf("%v, %v", m, err)
			case tt.want != "" && (err != nil || m.Name() != tt.want):
				t.Errorf("%v, %v; want %s", m, err, tt.want)
			}
		})
	}
}

// TestSystemd plays systemctl.
func TestSystemd(t *testing.T) {
	var calls []string
	answers := map[string]string{
		"show":       "UnitFileState=enabled\nActiveState=activating\n",
		"journalctl": "12:00:01 info  starting\ncoracle: port 6443 is taken by haproxy (pid 7)\ncoracle: choose another\n",
	}
	s := newSystemd(t.TempDir(), true, func(_ context.Context, name string, args ...string) (string, error) {
		calls = append(calls, name+" "+strings.Join(args, " "))
		if name == "systemctl" && args[0] == "start" {
			return "", &commandError{line: "systemctl start", code: 1}
		}
		if slices.Contains(args, "--property=ExecMainStatus") {
			return "5\n", nil
		}
		return answers[args[0]] + answers[name], nil
	})
	u := Unit{Name: "coracle", Exec: []string{"/usr/local/bin/coracle", "server"}}
	for range 2 { // the second time there is nothing to do
		if err := s.Install(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(t.Context(), "coracle"); exitcode.ClassOf(err) != exitcode.Unreachable || !strings.HasSuffix(err.Error(), "it says:\nport 6443 is taken by haproxy (pid 7)\nchoose another") {
		t.Errorf("start: %v", err)
	}
	if got, err := s.State(t.Context(), "coracle"); err != nil || got != (State{true, Starting}) {
		t.Errorf("state: %+v, %v", got, err)
	}
	if err := errors.Join(s.Disable(t.Context(), "coracle"), os.Remove(s.path("coracle")), s.Reload(t.Context(), "coracle")); err != nil {
		t.Error(err)
	}
	link := s.wants("coracle") // that somebody has left of it
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(s.path("coracle"), link)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Disable(t.Context(), "coracle"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(link); !errors.Is(err, os.ErrNotExist) {
		t.Error("a service without a unit is still enabled")
	}
	calls = slices.DeleteFunc(calls, func(c string) bool { return strings.HasPrefix(c, "journalctl") })
	want := []string{"systemctl daemon-reload", "systemctl start coracle", "systemctl show --property=ExecMainStatus --value coracle",
		"systemctl show --property=UnitFileState,ActiveState coracle",
		"systemctl --quiet disable coracle", "systemctl daemon-reload", "systemctl reset-failed coracle"}
	if !slices.Equal(calls, want) {
		t.Errorf("%q,\nwant %q", calls, want)
	}
}

func TestComplaint(t *testing.T) {
	tests := []struct{ name, log, want string }{
		{"nothing", "", ""},
		{"no word for people", "a\nb\nc\n", "b\nc"},
		{"for people", "x\ncoracle: a\ncoracle: b\ny\n", "a\nb"},
		{"the last of several starts", "coracle: old\nx\ncoracle: new\n", "new"},
	}
	for _, tt := range tests {
		if got := reason(tt.log, 2); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, ok := range map[string]bool{"coracle": true, "coracle-a.b_1": true, "": false, "-x": false, "a/b": false, "a b": false, "a@b": false} {
		if err := ValidName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestCommandEnds: what a command of an init system has started neither holds it up nor outlives it.
func TestCommandEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	pid, err := Command(ctx, "sh", "-c", "sleep 30 & echo $!; wait; wait")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	// A process that ends closes its output a moment before it has ended.
	id, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.PidfdOpen(id, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	ended, err := unix.Poll([]unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}, 10_000)
	for errors.Is(err, unix.EINTR) {
		ended, err = unix.Poll([]unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}, 10_000)
	}
	if ended != 1 {
		t.Errorf("its child %d lives: %v", id, err)
	}
}
