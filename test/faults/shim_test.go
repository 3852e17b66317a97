package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/runtime/sharedshims"
	"github.com/coracle-dev/coracle/test/growth"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// TestKilledShims kills a shim that several pods share: they run again within 5 seconds, no container of others is touched, and nothing is left over.
// Each run has new pods, because the kubelet lets one that ends again and again wait.
func TestKilledShims(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	s := newSingle(t, hosts.Plan{Servers: 1, Images: true, ServerArgs: []string{"--pod-runtime=shared"}}, func(*hosts.Host) {})
	s.replicas = 3 * sharedshims.Capacity / 2
	s.deploy("")
	s.anew()
	first := s.host.Figures()
	c := verdicts.Class{Name: "shim", Kinds: []string{"killed"}, Long: 200}
	c.Each(t, func(sub *testing.T, _ string, seed uint64, row *verdicts.Row) {
		s.t = sub
		random := rand.New(rand.NewPCG(seed, 0))
		before, shims, restarts := s.containers(), s.shims(), s.Running(s.host).Restarts()
		victim := shims[random.IntN(len(shims))]
		hit := strings.Count(s.host.Run("pgrep", "-P", victim), "\n") // a container for each pod; its sandbox is a thread
		began := time.Now()
		s.host.Run("kill", "-9", victim)
		s.await("other containers run", func() error {
			if n := s.replicas - len(same(before, s.containers())); n != hit {
				return fmt.Errorf("%d pods have another container, not %d", n, hit)
			}
			return s.podsRun()
		})
		took := time.Since(began)
		row.Seconds, row.Seen = took.Seconds(), fmt.Sprintf("%d pods", hit)
		if limit := 5 * time.Second; took > limit {
			sub.Errorf("%d pods ran again after %s", hit, took)
		}
		sub.Logf("%d pods ran again after %s", hit, took)
		if n := s.Running(s.host).Restarts() - restarts; n > 0 {
			sub.Errorf("child processes were restarted %d times", n)
		}
		s.anew() // the kubelet keeps the last ended container of each pod, with its log
		s.await("nothing is left over", func() error {
			s.removeEnded()
			if grown := growth.Grown(first, s.host.Figures()); len(grown) > 0 {
				return fmt.Errorf("grown: %s", strings.Join(grown, "; "))
			}
			return nil
		})
	})
}

// anew replaces all pods.
func (s *single) anew() {
	s.t.Helper()
	s.well()
	s.host.Coracle("kubectl", "delete", "pods", "--all", "--wait=true")
	s.well()
}

// removeEnded removes ended sandboxes without containers, as the kubelet does every minute. It fails for one that the kubelet is removing. Containers are removed by
// the kubelet at once, with their logs.
func (s *single) removeEnded() {
	s.t.Helper()
	var all struct {
		Containers []struct{ PodSandboxID string }
	}
	if err := json.Unmarshal([]byte(s.host.Coracle("crictl", "ps", "--all", "-o", "json")), &all); err != nil {
		s.t.Fatal(err)
	}
	ended := strings.Fields(s.host.Coracle("crictl", "pods", "-q", "--state", "NotReady"))
	for _, c := range all.Containers {
		ended = slices.DeleteFunc(ended, func(id string) bool { return id == c.PodSandboxID })
	}
	if len(ended) > 0 {
		_, _ = s.host.TryCoracle(append([]string{"crictl", "rmp"}, ended...)...)
	}
}

// shims are the processes of shared shims.
func (s *single) shims() []string {
	s.t.Helper()
	return strings.Fields(s.host.Run("pgrep", "-f", "containerd-shim-runc-v2.* -id=shared-"))
}

// same returns the containers that were there before and are still.
func same(before, after []string) (out []string) {
	for _, c := range after {
		if slices.Contains(before, c) {
			out = append(out, c)
		}
	}
	return out
}
