package nshost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestOptionalMount: a host starts without an optional mount whose source is gone, and without the empty file that was its mount point.
func TestOptionalMount(t *testing.T) {
	here, root := t.TempDir(), t.TempDir()
	s := spec{Root: root, Mounts: []Mount{
		{Source: here, Target: "/there", ReadOnly: true, Optional: true}, {Source: here + "/none", Target: "/gone", ReadOnly: true, Optional: true},
		{Source: here + "/none", Target: "/own", Optional: true}, {Source: here + "/none", Target: "/needed"},
	}}
	has := map[string]bool{}
	for _, m := range mounts(s) {
		has[m.target] = true
	}
	if !has["there"] || has["gone"] || !has["needed"] {
		t.Errorf("mounted are %v", has)
	}
	for name, content := range map[string]string{"there": "", "gone": "", "own": "x", "needed": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dropTargets(s)
	for name, want := range map[string]bool{"there": true, "gone": false, "own": true, "needed": true} {
		if got := paths.Exists(filepath.Join(root, name)); got != want {
			t.Errorf("%s is there: %t", name, got)
		}
	}
}
