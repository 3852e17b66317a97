package front

import (
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/clocksteps"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestFault: a version on trial is well if its processes run on, or start again only because the clock was set.
func TestFault(t *testing.T) {
	before := []state.Child{{Name: "node", Restarts: 1, LastExit: "was killed", State: "ready"}}
	clock := "ended with exit status 1: clock: " + clocksteps.Reason + "2026-01-02 to 2026-01-01"
	for name, c := range map[string]struct {
		now    state.Child
		wrong  string
		passes bool
	}{
		"well":                       {now: before[0]},
		"it has crashed":             {state.Child{Name: "node", Restarts: 2, LastExit: "crashed", State: "ready"}, "node crashed", false},
		"it is not ready any more":   {state.Child{Name: "node", Restarts: 1, LastExit: "was killed", State: "starting"}, "node was killed", false},
		"the clock was set":          {state.Child{Name: "node", Restarts: 2, LastExit: clock, State: "starting"}, "node is not ready since the clock was set from ...", true},
		"and it is ready again":      {now: state.Child{Name: "node", Restarts: 2, LastExit: clock, State: "ready"}},
		"the clock was set long ago": {state.Child{Name: "node", Restarts: 1, LastExit: clock, State: "starting"}, "node " + clock, false},
	} {
		if wrong, passes := fault(before, []state.Child{c.now}); wrong != c.wrong || passes != c.passes {
			t.Errorf("%s: %q, passes %t", name, wrong, passes)
		}
	}
}
