package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestKilledAfterEnable: a service whose installer was killed when it had enabled or started it may have a cluster since, and nobody
// removes that without being asked.
func TestKilledAfterEnable(t *testing.T) {
	for _, at := range []string{"start", "ready"} {
		w := newWorld(t)
		w.killBefore(t, at)
		cluster := filepath.Join(w.Root, w.want.Config.Dirs.Data, "server", "theirs")
		if err := os.MkdirAll(cluster, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Install(t.Context(), w.want); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(cluster); err != nil {
			t.Errorf("the data, killed before %s: %v", at, err)
		}
	}
}

// TestStoppedStep: a stopped service is asked after the step, too, and nothing is changed if it must not be made.
func TestStoppedStep(t *testing.T) {
	w := newWorld(t)
	w.want.Start = false
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Fatal(err)
	}
	before := w.tree(t)
	if err := os.WriteFile(w.want.Self, []byte("version 0"), 0o755); err != nil {
		t.Fatal(err)
	}
	older := errors.New("older")
	w.Step = func(context.Context, Record, string) error { return older }
	if _, err := w.Install(t.Context(), w.want); !errors.Is(err, older) {
		t.Errorf("%v", err)
	}
	w.same(t, before)
	w.Step = func(context.Context, Record, string) error { return nil }
	if _, err := w.Install(t.Context(), w.want); err != nil {
		t.Error(err)
	}
}
