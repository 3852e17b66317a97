package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// ownRunc is a file beside this program, with the name of runc.
func ownRunc(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(self), "runc")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

func TestCreatedDir(t *testing.T) {
	own := ownRunc(t)
	link := filepath.Join(t.TempDir(), "runc")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "runc")
	if err := os.WriteFile(other, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		args []string
		want string
	}{
		{own, []string{"--root", "/run/runc/k8s.io", "--log", "/log", "start", "web"}, "/run/runc/k8s.io/web"},
		{link, []string{"--root", "/run/runc/k8s.io", "--log", "/log", "start", "web"}, "/run/runc/k8s.io/web"},
		{own, []string{"--root", "/run/runc/k8s.io", "create", "--bundle", "start", "web", "--no-pivot"}, ""},
		{own, []string{"--root", "/run/runc/k8s.io", "delete", "web"}, ""},
		{own, []string{"start", "web"}, ""},
		{own, []string{"start", "--root", "web"}, ""},
		{other, []string{"--root", "/run/runc/k8s.io", "start", "web"}, ""},
		{"/nothing/runc", []string{"--root", "/run/runc/k8s.io", "start", "web"}, ""},
	} {
		if got := createdDir(exec.Command(c.path, c.args...)); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.path, c.args, got, c.want)
		}
	}
}

// created makes runc's directory of a container whose first process is a shell with the given script; its argument is the FIFO.
func created(t *testing.T, script string) (dir string, first *exec.Cmd) {
	t.Helper()
	dir = t.TempDir()
	fifo := filepath.Join(dir, "exec.fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	first = exec.Command("sh", "-c", script, "sh", fifo)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Kill(); _ = first.Wait() })
	p, err := process.Find(first.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	state := fmt.Sprintf(`{"id":"web","init_process_pid":%d,"init_process_start":%d}`, p.PID, p.Started)
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, first
}

func TestStart(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		limit  time.Duration
		want   string // in the error
	}{
		"waits":           {script: `printf 0 >"$1"; exec sleep 60`},
		"comes later":     {script: `sleep 0.3; printf 0 >"$1"; exec sleep 60`},
		"ends after that": {script: `printf 0 >"$1"`},
		"has ended":       {script: `exit 1`, want: errNotCreated.Error()},
		"says nothing":    {script: `: >"$1"; exec sleep 60`, want: "without a word"},
		"does not come":   {script: `exec sleep 60`, limit: time.Millisecond, want: "has not come"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := created(t, c.script)
			limit := c.limit
			if limit == 0 {
				limit = time.Minute
			}
			err := start(dir, limit)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("the error is %v, want %q", err, c.want)
			}
			if _, none := os.Stat(filepath.Join(dir, "exec.fifo")); (none != nil) != (c.want == "") {
				t.Errorf("the FIFO: %v", none)
			}
		})
	}
	if err := start(t.TempDir(), time.Minute); !errors.Is(err, errNotCreated) {
		t.Errorf("without a FIFO: %v", err)
	}
}

// TestStartInsteadOfRunc asks as go-runc does.
func TestStartInsteadOfRunc(t *testing.T) {
	own := ownRunc(t)
	m := monitor{reaper.Default}
	for script, want := range map[string]string{`printf 0 >"$1"; exec sleep 60`: "", `: >"$1"; exec sleep 60`: "without a word"} {
		dir, _ := created(t, script)
		command := exec.Command(own, "--root", filepath.Dir(dir), "start", filepath.Base(dir))
		said := &bytes.Buffer{}
		command.Stdout, command.Stderr = said, said
		exits, err := m.StartLocked(command)
		if err != nil {
			t.Fatal(err)
		}
		status, err := m.Wait(command, exits)
		if err != nil || (status == 0) != (want == "") || !strings.Contains(said.String(), want) {
			t.Errorf("%s: status %d, %v, %q", script, status, err, said)
		}
	}
}
