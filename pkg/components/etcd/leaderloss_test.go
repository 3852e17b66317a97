package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestLeaderLost writes through a member whose leader has gone without a word.
func TestLeaderLost(t *testing.T) {
	e, _ := cluster(t, 3)
	put(t, e[0], "a", "1")
	i := slices.IndexFunc(e, func(one *Etcd) bool { return one.running.Server.Leader() == one.running.Server.MemberID() })
	leader, other := e[i], e[(i+1)%3]
	leader.running.Server.PauseSending()
	defer leader.running.Server.ResumeSending()

	c := client(t, other)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	_, err := c.Put(ctx, "a", "2")
	took := time.Since(began)
	if !errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) || took < settle || took > 2*time.Second+settle+time.Second {
		t.Errorf("a write ends after %s with %v", took, err)
	}
	put(t, other, "a", "3")
	want(t, other, "a", "3")
}

// TestWatchWaits begins a watch where there is no leader.
func TestWatchWaits(t *testing.T) {
	e, stop := cluster(t, 3)
	put(t, e[0], "a", "1")
	stop[1]()
	stop[2]()
	for end := time.Now().Add(10 * time.Second); e[0].running.Server.Leader() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the last of three still has a leader")
		}
	}
	c := client(t, e[0])
	defer c.Close()
	began := time.Now()
	answer := <-c.Watch(clientv3.WithRequireLeader(t.Context()), "a")
	if took := time.Since(began); !errors.Is(answer.Err(), rpctypes.ErrNoLeader) || took < hold {
		t.Errorf("a watch ends after %s with %v", took, answer.Err())
	}
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		time.Sleep(hold / 4)
		mustRun(t, e[1])
	})
	began = time.Now()
	watch := c.Watch(clientv3.WithRequireLeader(t.Context()), "a", clientv3.WithRev(1))
	if answer := <-watch; answer.Err() != nil || len(answer.Events) != 1 {
		t.Errorf("with another member %s later: %v", time.Since(began), answer.Err())
	}
}
