package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/upgrade/stage"
)

// measureUpgrade upgrades an installed server with pods that serve, and rolls back.
func measureUpgrade(t *testing.T, runs int, r *results) {
	t.Run("upgrade", func(t *testing.T) {
		s := stage.Install(t, machines.Open(t), "upgraded", "server")
		s.Bring(t)
		s.Work(t)
		for range runs {
			before := s.Containers()
			missed := s.Ask(t, func() {
				began := time.Now()
				s.Run("coracle", "upgrade", "--insecure-unsigned", "--hold=2s", stage.Newer)
				r.add("upgrade: whole command, with 2 s on trial", "s", 0, time.Since(began).Seconds())
			})
			r.add("upgrade: pods restarted", "", 0, float64(restarted(before, s.Containers())))
			r.add("upgrade: requests to pods that failed", "", 0, float64(missed["connection"].Failed+missed["service"].Failed))
			r.add("upgrade: API away", "s", 0, missed["api"].GapSeconds)
			s.Run("coracle", "rollback", "--hold=1s")
		}
	})
}

// restarted is the number of containers that were replaced.
func restarted(before, after string) (n int) {
	was := map[string]bool{}
	for _, line := range strings.Split(before, "\n") {
		was[line] = true
	}
	for _, line := range strings.Split(after, "\n") {
		if !was[line] {
			n++
		}
	}
	return n
}
