package upgrade

import (
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/upgrade/stage"
)

// TestCluster upgrades an agent, and one of three servers, whose data must not be put back.
func TestCluster(t *testing.T) {
	slots.Take(t)
	site := machines.Open(t)
	first := stage.Install(t, site, "first", "server")
	join := func(name, role string) stage.Server {
		token := first.Run("coracle", "token", "create", "--role", role)
		s := stage.Install(t, site, name, role, "--server", "https://"+first.IP()+":6443", "--token", token)
		s.Bring(t)
		return s
	}
	second := join("second", "server")
	join("third", "server")
	agent := join("agent", "agent")

	t.Run("agent", func(t *testing.T) {
		a := agent.With(t)
		a.Write("/etc/standin", "exits\n")
		if _, err := a.Try("coracle", "upgrade", "--insecure-unsigned", stage.Standin); machines.Code(err) != 6 || !strings.Contains(err.Error(), "an agent has none") {
			t.Errorf("exit code %d: %v", machines.Code(err), err)
		}
		a.Run("coracle", "upgrade", "--insecure-unsigned", "--hold=1s", stage.Newer)
		if got := a.Running(); got == a.Version {
			t.Errorf("%s runs", got)
		}
	})
	t.Run("server", func(t *testing.T) {
		s := second.With(t)
		s.Write("/etc/standin", "hangs\n")
		done := make(chan error, 1)
		go func() {
			_, err := s.Try("coracle", "upgrade", "--insecure-unsigned", "--timeout=4s", stage.Standin)
			done <- err
		}()
		s.AwaitPhase(t, "trial")
		for began := time.Now(); ; { // the remaining servers may have no leader for a moment
			_, err := first.Try("coracle", "kubectl", "create", "configmap", "during")
			if err == nil {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("two of three servers take no writes: %v", err)
			}
		}
		if err := <-done; machines.Code(err) != 6 || !strings.Contains(err.Error(), "must not go back in time") {
			t.Errorf("exit code %d: %v", machines.Code(err), err)
		}
		s.Kubectl("get", "configmap", "during")
		s.Run("coracle", "upgrade", "--insecure-unsigned", "--hold=1s", stage.Newer)
		if got := s.Running(); got == s.Version {
			t.Errorf("%s runs", got)
		}
		if members := s.Run("coracle", "etcd", "members"); strings.Count(members, "yes") != 3 {
			t.Errorf("members:\n%s", members)
		}
		if _, err := s.Try("coracle", "rollback", "--datastore"); err == nil || !strings.Contains(err.Error(), "no datastore of the previous version") {
			t.Errorf("a member's data may go back: %v", err)
		}
	})
}
