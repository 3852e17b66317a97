package localcluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestBrokenSnapshot: a snapshot without a description hides no other and can be removed, and what interrupted removals and killed clusters have left is removed.
func TestBrokenSnapshot(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	for _, name := range []string{"good", "broken", removedPrefix + "broken", removedPrefix + "earlier", partOf("new", "lives"), partOf("new", "killed"), partOf("new", "gone")} {
		if err := os.MkdirAll(s.snapshot(name, "node"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Snapshot{Name: "good"}).write(s.snapshot("good", snapshotFile)); err != nil {
		t.Fatal(err)
	}
	self, err := describeProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := Process{PID: self.PID, Start: self.Start + 1, Boot: self.Boot}
	for _, r := range []Record{{Name: "lives", Holder: self}, {Name: "killed", Holder: dead}} {
		if err := s.save(r); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.Snapshots(); err != nil || len(all) != 1 || all[0].Name != "good" {
		t.Errorf("%v, %v", all, err)
	}
	if err := s.RemoveSnapshot(t.Context(), "broken"); err != nil {
		t.Error(err)
	}
	for _, gone := range []string{"broken", removedPrefix + "broken", removedPrefix + "earlier", partOf("new", "killed"), partOf("new", "gone")} {
		if paths.Exists(s.snapshot(gone)) {
			t.Errorf("%s is there", gone)
		}
	}
	for _, kept := range []string{"good", partOf("new", "lives")} {
		if !paths.Exists(s.snapshot(kept)) {
			t.Errorf("%s is gone", kept)
		}
	}
	if err := s.RemoveSnapshot(t.Context(), "none"); err == nil {
		t.Error("a snapshot is removed that does not exist")
	}
}

// TestTidySnapshots: with the last cluster, the copy that it was taking when it was killed is removed, and the directory.
func TestTidySnapshots(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "clusters")}
	if err := os.MkdirAll(s.snapshot(partOf("new", "gone"), "node"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.tidy()
	if paths.Exists(s.Dir) {
		t.Error("there is a directory without clusters and snapshots")
	}
}
