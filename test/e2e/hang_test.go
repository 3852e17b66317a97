package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testHalfHangs freezes the control plane, and the node while that is dealt with: each is restarted by itself, and the pods notice nothing.
func testHalfHangs(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	before := startSleepers(t, h)
	pids := sleeperProcesses(t, h)
	halves := []struct {
		role    string
		seconds int
	}{{"control-plane", 60}, {"node", 40}}
	for _, half := range halves {
		pid, err := s.ChildPID(half.role)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // so that the node's end comes at another moment than the control plane's
	}
	for _, half := range halves {
		hosts.Eventually(t, 3*time.Minute, func() error {
			return contains("the log", s.Log(), fmt.Sprintf("%s gave no sign of life for %d s and was killed; restarting at once", half.role, half.seconds))
		})
	}
	waitReady(t, h)
	h.Kubectl("create", "configmap", "after-the-hang")
	if got := containers(h); got != before {
		t.Errorf("containers before:\n%s\nafter:\n%s", before, got)
	}
	if got := h.Run("pgrep", "-x", "sleep"); got != pids {
		t.Errorf("the pods' processes changed: %q, then %q", pids, got)
	}
	if n := s.Restarts(); n != 2 {
		t.Errorf("%d processes were restarted, not 2", n)
	}
	return s
}
