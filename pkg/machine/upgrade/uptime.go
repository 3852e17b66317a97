package upgrade

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// uptime returns how long this machine has run since its boot, without suspends. All its processes read the same, and no step of the
// clock changes it. Trials are judged by it.
func uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it fails for unknown clocks only
	return time.Duration(t.Nano())
}

// forget removes what the processes of a stopped coracle have written about themselves, so that what is there later is by the next ones.
func forget(d paths.Dirs) {
	for _, name := range []string{state.Front, state.ControlPlane, state.Node} {
		_ = os.Remove(d.State(name))
	}
}
