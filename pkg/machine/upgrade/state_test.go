package upgrade

import (
	"testing"

	"github.com/coracle-dev/coracle/test/ondisk"
)

// TestStateIsOnDisk when the next step begins: the guard of a machine that lost its power goes by it.
func TestStateIsOnDisk(t *testing.T) {
	p := place(t.TempDir())
	if err := p.write(State{Phase: Trial}); err != nil {
		t.Fatal(err)
	}
	ondisk.Check(t, p.state())
}

// TestPending: the guard runs until a trial has ended, and a roll-back that was interrupted has not.
func TestPending(t *testing.T) {
	for phase, want := range map[Phase]bool{Armed: true, Trial: true, Restoring: true, Committed: false, RolledBack: false, Cancelled: false, "": false} {
		if got := (State{Phase: phase}).Pending(); got != want {
			t.Errorf("%q: %t", phase, got)
		}
	}
}
