package supervise

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// EndOthers ends everything else in the PID namespace that this process is the init of, as a machine does that is shut
// down: all are asked, and what is left after grace is killed.
func EndOthers(grace time.Duration) {
	_ = unix.Kill(-1, unix.SIGTERM)
	for deadline := time.Now().Add(grace); others() && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond)
	}
	_ = unix.Kill(-1, unix.SIGKILL)
}

// others reports whether any process but this one runs.
func others() bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			return true
		}
	}
	return false
}
