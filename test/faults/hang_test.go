package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	const blocked = "blocked-stderr"
	halves := map[string][]string{controlPlane: {controlPlane}, node: {node}, "both": {controlPlane, node}, blocked: nil}
	servers := map[string]*single{} // by log level: in one that says much, it is soon more than coracle keeps for who does not read
	c := verdicts.Class{Name: "hang", Kinds: []string{controlPlane, node, "both", blocked}, Long: 5}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		level := "info"
		if kind == blocked {
			level = "trace"
		}
		s := servers[level]
		if s != nil && s.broken {
			s.end()
			s = nil
		}
		if s == nil {
			plan := hosts.Plan{Servers: 1, Images: true, Options: hosts.Options{Piped: true}, ServerArgs: []string{"--log-level=" + level}}
			s = newSingle(t, plan, func(*hosts.Host) {})
			s.well()
			servers[level] = s
		}
		s.t, s.broken = sub, true
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		before, restarts := s.containers(), s.Running(s.host).Restarts()
		// The clients' balancer is in the node. While only that is frozen, the API's own address is asked.
		f := fault{name: "hang-" + kind, stops: kind != blocked, do: func(*arena) []*hosts.Host {
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
		return strings.Count(s.Running(s.host).Log(), fmt.Sprintf("%s gave no sign of life for %d s and was killed; restarting at once",
			half, map[string]int{controlPlane: 60, node: 40}[half]))
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
			if !slices.Contains(halves, controlPlane) {
				s.writes()
			}
			if killed(half) == before[half] {
				return fmt.Errorf("%s was not killed", half)
			}
			return nil
		})
	}
}

// writes fails the test unless the API takes a write at its own address.
func (s *single) writes() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), gapLimit())
	defer cancel()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "meanwhile-"}}
	if _, err := s.direct[s.host.Name].CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
		s.t.Errorf("the API takes no writes: %v", err)
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
