package localcluster

import (
	"os"
	"testing"
)

// TestSweepSnapshots: of the snapshots, only that of a session whose owner was killed is removed.
func TestSweepSnapshots(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	self, err := describeProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := Process{PID: self.PID, Start: self.Start + 1, Boot: self.Boot}
	for _, one := range []Snapshot{{Name: "stays"}, {Name: "in-use", Owner: self}, {Name: "of-killed", Owner: dead}} {
		if err := os.MkdirAll(s.snapshot(one.Name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := one.write(s.snapshot(one.Name, snapshotFile)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := s.Snapshots()
	if err != nil || len(left) != 2 || left[0].Name == "of-killed" || left[1].Name == "of-killed" {
		t.Errorf("left: %+v (%v)", left, err)
	}
}
