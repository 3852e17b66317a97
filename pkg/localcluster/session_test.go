package localcluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

func TestRandomName(t *testing.T) {
	a, b := RandomName(), RandomName()
	for _, name := range []string{a, b} {
		if err := (Plan{Name: name, Servers: 1, Nodes: 1}).Check(); err != nil {
			t.Error(err)
		}
	}
	if a == b {
		t.Errorf("two are called %s", a)
	}
}

func TestSweepUnfinished(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "clusters")}
	if err := os.MkdirAll(s.logs("half"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if paths.Exists(s.Dir) {
		t.Error("a directory without a record is left")
	}
}

// TestForeignDirectories: what is in --data-dir and is no cluster's stays, and no cluster is made of it.
func TestForeignDirectories(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	picture := filepath.Join(s.Dir, "photos", "a.jpg")
	if err := errors.Join(os.Mkdir(filepath.Dir(picture), 0o755), os.WriteFile(picture, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.add(Record{Name: "photos"}, ""); err == nil || !strings.Contains(err.Error(), "is no cluster's") {
		t.Errorf("a cluster is made in it: %v", err)
	}
	if !paths.Exists(picture) {
		t.Error("it is gone")
	}
	one := Record{Name: "one", Config: filepath.Join(s.dir("one"), "config.yaml")}
	if err := s.add(one, "token: x"); err != nil || !paths.Exists(one.Config) || !paths.Exists(s.recordFile("one")) {
		t.Errorf("another one is not made: %v", err)
	}
}

// TestNewerCluster: a removal that waited for another one leaves the next cluster of the same name alone.
func TestNewerCluster(t *testing.T) {
	s, now := Store{Dir: t.TempDir()}, time.Now().Round(0)
	self, err := describeProcess(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.add(Record{Name: "one", Created: now, Holder: self}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.remove(Record{Name: "one", Created: now.Add(-time.Hour)}); !isNotFound(err) {
		t.Errorf("another cluster's removal: %v", err)
	}
	if _, err := s.remove(Record{Name: "one", Created: now}); !errors.Is(err, errHeld) {
		t.Errorf("a removal that does not know the holder: %v", err)
	}
	if !paths.Exists(s.recordFile("one")) {
		t.Error("it is gone")
	}
}

// TestInterruptedRemoval: no part of a removed cluster is left under its name, whatever interrupts that.
func TestInterruptedRemoval(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s := Store{Dir: t.TempDir()}
	if err := s.add(Record{Name: "one"}, ""); err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(s.hosts("one"), "busy")
	if err := errors.Join(os.MkdirAll(busy, 0o700), unix.Mount("none", busy, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(s.dir(removedClusterPrefix+"one"), "hosts", "busy")
	t.Cleanup(func() { _ = errors.Join(unix.Unmount(busy, unix.MNT_DETACH), unix.Unmount(moved, unix.MNT_DETACH)) })
	if err := s.removeFiles("one"); err == nil {
		t.Fatal("a mount does not keep its directory")
	}
	if paths.Exists(s.dir("one")) {
		t.Error("a part of it is left under its name")
	}
	if err := unix.Unmount(moved, 0); err != nil {
		t.Fatal(err)
	}
	s.tidy()
	if paths.Exists(s.Dir) {
		t.Error("the rest is left")
	}
}

func TestSweepLeavesOthers(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	self, err := describeProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := Process{PID: self.PID, Start: self.Start + 1, Boot: self.Boot}
	for _, r := range []Record{
		{Name: "stays", Holder: dead},                   // one of coracle up
		{Name: "runs", Owner: self, Holder: self},       // one in use
		{Name: "starts", Owner: self},                   // one whose holder is not there yet
		{Name: "is-removed", Owner: dead, Holder: self}, // one whose holder removes it
	} {
		if err := os.MkdirAll(s.dir(r.Name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.save(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := s.names(); len(names) != 4 {
		t.Errorf("left are %v", names)
	}
}

func TestEndGroup(t *testing.T) {
	start := func() *exec.Cmd {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	cmd := start()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ticks, err := state.StartTicks(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	endGroup(0, 0) // which is this test's own
	endGroup(cmd.Process.Pid, ticks+1)
	select {
	case <-ended:
		t.Error("a process that has the number now was ended")
	case <-time.After(100 * time.Millisecond):
	}
	endGroup(cmd.Process.Pid, ticks)
	if err := <-ended; err == nil {
		t.Error("the process was not ended")
	}
}

// TestCommandDir: only the user who runs the command can read its kubeconfig, and no directory of another user is used.
func TestCommandDir(t *testing.T) {
	dir := t.TempDir()
	s := Session{store: Store{Dir: filepath.Join(dir, "clusters")},
		Record: Record{Name: "one", CommandDir: filepath.Join(dir, "command"), Payload: filepath.Join(dir, "payload")}}
	for path, text := range map[string]string{s.store.Kubeconfig("one"): "access", filepath.Join(s.Record.Payload, core): "code"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	made, err := s.CommandDir(os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{made.Dir: 0o700, made.Cache(): 0o700, made.Kubeconfig(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if _, err := s.CommandDir(os.Getuid(), os.Getgid()); err == nil {
		t.Error("a directory that existed is used")
	}
}

func TestOffer(t *testing.T) {
	open, closed := t.TempDir(), t.TempDir()
	for dir, mode := range map[string]os.FileMode{open: 0o755, closed: 0o700} {
		if err := os.WriteFile(filepath.Join(dir, "program"), []byte("code"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		dir  string
		uid  int
		link bool
	}{
		"root":           {closed, 0, true},
		"a user":         {closed, 1234, false},
		"a public place": {open, 1234, reachableByAll(filepath.Join(open, "program"))},
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "kubectl")
			if err := installProgram(filepath.Join(c.dir, "program"), at, c.uid); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(at)
			if err != nil || info.Mode()&os.ModeSymlink != 0 != c.link {
				t.Errorf("%v (%v)", info.Mode(), err)
			}
			if data, err := os.ReadFile(at); string(data) != "code" {
				t.Errorf("%q (%v)", data, err)
			}
		})
	}
}

func TestArtifacts(t *testing.T) {
	a := Artifacts{Dir: filepath.Join(t.TempDir(), "a", "b"), UID: os.Getuid(), GID: os.Getgid()}
	if err := a.write("nodes/one/status.txt", []byte("well")); err != nil {
		t.Fatal(err)
	}
	if err := a.copy(filepath.Join(a.Dir, "nodes/one/status.txt"), "copy.txt"); err != nil {
		t.Fatal(err)
	}
	if err := a.copy(filepath.Join(a.Dir, "none"), "none"); err != nil || paths.Exists(filepath.Join(a.Dir, "none")) {
		t.Errorf("a file that is not there: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(a.Dir, "copy.txt")); string(data) != "well" {
		t.Errorf("%q (%v)", data, err)
	}
}
