package localcluster

import (
	"os"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestBrokenSnapshot: a snapshot without a description hides no other and can be removed, as can what interrupted removals have left.
func TestBrokenSnapshot(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	for _, name := range []string{"good", "broken", removedPrefix + "broken", removedPrefix + "earlier", ".other.cluster"} {
		if err := os.MkdirAll(s.snapshot(name, "node"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Snapshot{Name: "good"}).write(s.snapshot("good", snapshotFile)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Snapshots(); err != nil || len(all) != 1 || all[0].Name != "good" {
		t.Errorf("%v, %v", all, err)
	}
	if err := s.RemoveSnapshot(t.Context(), "broken"); err != nil {
		t.Error(err)
	}
	for _, gone := range []string{"broken", removedPrefix + "broken", removedPrefix + "earlier"} {
		if paths.Exists(s.snapshot(gone)) {
			t.Errorf("%s is there", gone)
		}
	}
	for _, kept := range []string{"good", ".other.cluster"} {
		if !paths.Exists(s.snapshot(kept)) {
			t.Errorf("%s is gone", kept)
		}
	}
	if err := s.RemoveSnapshot(t.Context(), "none"); err == nil {
		t.Error("a snapshot is removed that does not exist")
	}
}
