package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStartFIFO(t *testing.T) {
	own := filepath.Join(filepath.Dir(os.Args[0]), "runc")
	for _, c := range []struct {
		path string
		args []string
		want string
	}{
		{own, []string{"--root", "/run/runc/k8s.io", "--log", "/log", "start", "web"}, "/run/runc/k8s.io/web/exec.fifo"},
		{own, []string{"--root", "/run/runc/k8s.io", "create", "start", "web", "--bundle"}, ""},
		{own, []string{"--root", "/run/runc/k8s.io", "delete", "web"}, ""},
		{own, []string{"start", "web"}, ""},
		{own, []string{"start", "--root", "web"}, ""},
		{"/usr/bin/runc", []string{"--root", "/run/runc/k8s.io", "start", "web"}, ""},
	} {
		if got := startFIFO(exec.Command(c.path, c.args...)); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.path, c.args, got, c.want)
		}
	}
}

// TestRelease: the process that waits comes before, or after, or never.
func TestRelease(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		fifo := filepath.Join(t.TempDir(), "exec.fifo")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error, 1)
		go func() {
			<-time.After(late)
			wrote <- os.WriteFile(fifo, []byte("0"), 0)
		}()
		if late == 0 {
			<-time.After(20 * time.Millisecond) // so that it waits most often
		}
		if released, reader := release(fifo, time.Minute); !released || reader != nil {
			t.Fatalf("late by %s: %t, %v", late, released, reader)
		}
		if err := <-wrote; err != nil {
			t.Errorf("late by %s: %v", late, err)
		}
		if _, err := os.Stat(fifo); err == nil {
			t.Errorf("late by %s: the FIFO is left", late)
		}
	}
	fifo := filepath.Join(t.TempDir(), "exec.fifo")
	if released, reader := release(fifo, time.Minute); released || reader != nil {
		t.Errorf("without a FIFO: %t, %v", released, reader)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	released, reader := release(fifo, 10*time.Millisecond)
	if released || reader == nil {
		t.Fatalf("with a process that never waits: %t, %v", released, reader)
	}
	defer reader.Close()
	if err := os.WriteFile(fifo, []byte("0"), 0); err != nil { // it does not block, as somebody may read yet
		t.Error(err)
	}
	if _, err := os.Stat(fifo); err != nil {
		t.Error(err)
	}
}
