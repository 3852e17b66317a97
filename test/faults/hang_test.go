package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// The halves of a server.
const (
	controlPlane = "control-plane"
	node         = "node"
)

// TestHangs freezes a half of a server, or both, while clients write: each is restarted by itself, and the pods notice nothing. And it lets nobody read
// what the server says for longer than a half may give no sign of life: nothing waits for that.
func TestHangs(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	var s *single
	const blocked = "blocked-stderr"
	halves := map[string][]string{controlPlane: {controlPlane}, node: {node}, "both": {controlPlane, node}, blocked: nil}
	c := verdicts.Class{Name: "hang", Kinds: []string{controlPlane, node, "both", blocked}, Long: 5}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		if s != nil && s.broken {
			s.end()
			s = nil
		}
		if s == nil {
			plan := hosts.Plan{Servers: 1, Images: true, Options: hosts.Options{Piped: true}, ServerArgs: []string{"--log-level=debug"}}
			s = newSingle(t, plan, func(*hosts.Host) {})
			s.well()
		}
		s.t, s.broken = sub, true
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		before, restarts := s.containers(), s.Running(s.host).Restarts()
		f := fault{name: "hang-" + kind, stops: slices.Contains(halves[kind], controlPlane), do: func(*arena) []*hosts.Host {
			if kind == blocked {
				s.stopReading(random)
			} else {
				s.freezeHalves(random, halves[kind])
			}
			return nil
		}}
		v := s.suffer(sub, f, normal)
		row.Acknowledged, row.Lost, row.Seconds, row.Gap = v.acknowledged, len(v.lost), v.whole.Seconds(), v.gap.Seconds()
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		if after := s.containers(); !slices.Equal(after, before) {
			sub.Errorf("the containers were %v, and are %v", before, after)
		}
		if n := s.Running(s.host).Restarts() - restarts; n != len(halves[kind]) {
			sub.Errorf("%d processes were restarted, not %d", n, len(halves[kind]))
		}
		s.broken = sub.Failed()
	})
}

// freezeHalves stops processes one after the other, and waits until each is restarted.
func (s *single) freezeHalves(random *rand.Rand, halves []string) {
	s.t.Helper()
	killed := func(half string) int {
		return strings.Count(s.Running(s.host).Log(), half+" gave no sign of life for 60 s and was killed; restarting at once")
	}
	before := map[string]int{}
	for _, half := range halves {
		before[half] = killed(half)
		pause(random, 10*time.Second)
		pid, err := s.Running(s.host).ChildPID(half)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	for _, half := range halves {
		s.await(half+" is killed", func() error {
			if killed(half) == before[half] {
				return fmt.Errorf("%s was not killed", half)
			}
			return nil
		})
	}
}

// stopReading lets nobody read the output for more than a minute, until more is unread than coracle keeps, and then reads again.
func (s *single) stopReading(random *rand.Rand) {
	s.t.Helper()
	server, what := s.Running(s.host), "because nobody read them"
	before := strings.Count(server.Log(), what)
	server.StopReading()
	<-time.After(70 * time.Second)
	pause(random, 20*time.Second)
	server.ReadAgain()
	s.await("the log says that lines are missing", func() error {
		if strings.Count(server.Log(), what) == before {
			return fmt.Errorf("no lines are missing")
		}
		return nil
	})
}
