package install

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKilledAfterStart: a cluster whose installer was killed when it had started it may be used since, and nobody removes
// it without being asked.
func TestKilledAfterStart(t *testing.T) {
	w := newWorld(t)
	func() {
		defer func() { _ = recover() }()
		w.step = func(name string) error {
			if name == "ready" {
				panic("killed")
			}
			return nil
		}
		_, _ = w.Install(t.Context(), w.want)
	}()
	w.step = nil
	cluster := filepath.Join(w.Root, w.want.Config.Dirs.Data, "server", "theirs")
	if err := os.MkdirAll(cluster, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cluster); err != nil {
		t.Errorf("the data: %v", err)
	}
}
