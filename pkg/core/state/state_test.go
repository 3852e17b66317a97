package state

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestRecorder(t *testing.T) {
	dirs := paths.Dirs{Run: t.TempDir()}
	if _, ok, err := Read(dirs, Front); ok || err != nil {
		t.Fatalf("read nothing: %v, %v", ok, err)
	}
	r := NewRecorder(dirs, Front, "v1")
	end := r.Phase("unpack")
	before := r.Snapshot()
	end()
	r.Units([]lifecycle.Status{{Name: "etcd", State: lifecycle.Ready}})
	r.Detail("manifests", map[string]int{"applied": 3})
	if !before.Phases[0].Ended.IsZero() {
		t.Error("a snapshot changed")
	}
	p, ok, err := Read(dirs, Front)
	if !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	if p.Phases[0].Ended.IsZero() || p.Units[0].Name != "etcd" || string(p.Details["manifests"]) != `{"applied":3}` || p.Version != "v1" {
		t.Errorf("%+v", p)
	}
	r.Detail("manifests", nil)
	if p, _, err := Read(dirs, Front); err != nil || len(p.Details) != 0 {
		t.Errorf("a report that was withdrawn: %s, %v", p.Details, err)
	}
	if !p.Alive() {
		t.Error("this process is not alive")
	}
	if info, err := os.Stat(dirs.State(Front)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if err := os.WriteFile(dirs.State(Front), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(dirs, Front); err == nil {
		t.Error("read a damaged file without error")
	}
}

func TestAlive(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ticks, err := StartTicks(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p := Process{PID: cmd.Process.Pid, StartTicks: ticks}
	other := Process{PID: cmd.Process.Pid, StartTicks: ticks + 1}
	if !p.Alive() || other.Alive() {
		t.Errorf("alive %v, somebody else with its pid %v", p.Alive(), other.Alive())
	}
	_ = cmd.Process.Kill()
	for began := time.Now(); p.Alive(); time.Sleep(time.Millisecond) { // a zombie is not alive
		if time.Since(began) > time.Minute {
			t.Fatal("a zombie is taken for alive")
		}
	}
	_ = cmd.Wait()
	if (Process{}).Alive() {
		t.Error("nobody is alive")
	}
}

func TestWatch(t *testing.T) {
	dirs := paths.Dirs{Run: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed, err := Watch(ctx, dirs)
	if err != nil {
		t.Fatal(err)
	}
	next := func() bool {
		select {
		case _, ok := <-changed:
			return ok
		case <-time.After(time.Minute):
			t.Fatal("no event")
			return false
		}
	}
	next() // the first is there at once
	for range 3 {
		if err := Write(dirs, Process{Name: Node}); err != nil {
			t.Fatal(err)
		}
		if !next() {
			t.Fatal("closed")
		}
	}
	if err := os.RemoveAll(dirs.Run); err != nil { // as reset does
		t.Fatal(err)
	}
	next()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Dir(dirs.State(Node))); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what was removed is not watched again")
		}
	}
	time.Sleep(10 * time.Millisecond)
	for len(changed) > 0 {
		<-changed
	}
	for noticed, tries := false, 0; !noticed; tries++ { // between the directory and its watch nothing is noticed
		if tries == 600 {
			t.Fatal("the new directory is not watched")
		}
		if err := Write(dirs, Process{Name: Node}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			noticed = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	cancel()
	for next() {
	}
}

// TestReadNoLinks: root reads no other file for a process that puts a link or a pipe in place of its state.
func TestReadNoLinks(t *testing.T) {
	dirs := paths.Dirs{Run: t.TempDir()}
	other := filepath.Join(dirs.Run, "other")
	if err := os.WriteFile(other, []byte(`{"name":"another file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(dirs.State(Node)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, dirs.State(Node)); err != nil {
		t.Fatal(err)
	}
	if p, ok, err := Read(dirs, Node); ok || err == nil {
		t.Errorf("through a link: %+v, %v", p, err)
	}
	if err := unix.Mkfifo(dirs.State(ControlPlane), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, ok, err := Read(dirs, ControlPlane); ok || err == nil {
		t.Errorf("from a pipe: %+v, %v", p, err)
	}
}
