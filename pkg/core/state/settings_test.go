package state

import (
	"encoding/json"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestSettings(t *testing.T) {
	dirs := paths.Dirs{Run: t.TempDir()}
	if parts, running, err := ReadSettings(dirs, Node); parts != nil || running || err != nil {
		t.Fatalf("before the first start: %v, %v, %v", parts, running, err)
	}
	r := NewRecorder(dirs, Node, "v1")
	r.Settings("kubelet", Settings{Config: json.RawMessage(`{"a":1}`)})
	r.Settings("kube-proxy", Settings{Flags: [][2]string{{"v", "2"}, {"v", "4"}, {"empty", ""}}})
	r.Settings("containerd", "something else")
	parts, running, err := ReadSettings(dirs, Node)
	if err != nil || !running || len(parts) != 2 || string(parts["kubelet"].Config) != `{"a":1}` {
		t.Fatalf("%+v, %v, %v", parts, running, err)
	}
	for name, want := range map[string]struct {
		value string
		set   bool
	}{"v": {"4", true}, "empty": {"", true}, "missing": {"", false}} {
		if value, set := parts["kube-proxy"].Flag(name); value != want.value || set != want.set {
			t.Errorf("%s is %q, %v", name, value, set)
		}
	}
	if info, err := os.Stat(dirs.Settings(Node)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	// Another instance of the process has not told yet.
	NewRecorder(dirs, Node, "v1").Update(func(p *Process) { p.PID = 1 })
	if _, running, err := ReadSettings(dirs, Node); running || err != nil {
		t.Errorf("the settings of a process that has ended: %v, %v", running, err)
	}
	if err := unix.Unlink(dirs.Settings(Node)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", dirs.Settings(Node)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadSettings(dirs, Node); err == nil {
		t.Error("a link was followed")
	}
}
