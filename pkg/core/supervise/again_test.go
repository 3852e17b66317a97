package supervise

import (
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestRunAgain: after an orderly stop the programs can be started again, with other arguments; that is no restart after a failure.
func TestRunAgain(t *testing.T) {
	s := &Supervisor{Programs: []Program{player("steady")}, StopTimeout: time.Second}
	w := watch(s)
	stop := run(t, s)
	first := w.until(t, "ready", allReady)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	stop = run(t, s)
	again := w.until(t, "ready again", func(all []state.Child) bool { return allReady(all) && all[0].PID != first[0].PID })
	if again[0].Restarts != 0 {
		t.Errorf("%d restarts", again[0].Restarts)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
