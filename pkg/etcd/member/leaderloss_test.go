package member

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	_, err := c.Put(ctx, "a", "2")
	took := time.Since(began)
	if !errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) || took < writeGrace || took > 2*time.Second+writeGrace+3*time.Second {
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
	for end := time.Now().Add(time.Minute); e[0].running.Server.Leader() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the last of three still has a leader")
		}
	}
	// Each watch has a client of its own: in one client the stream of a watch that has just ended may answer the next one with its error
	// (client/v3/watch.go, closeSubstream).
	watch := func(options ...clientv3.OpOption) clientv3.WatchResponse {
		c := client(t, e[0])
		defer c.Close()
		return <-c.Watch(clientv3.WithRequireLeader(t.Context()), "a", options...)
	}
	began := time.Now()
	answer := watch()
	heldFor(t, began, answer.Err())
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		time.Sleep(leaderWait / 4)
		mustRun(t, e[1])
	})
	for end := time.Now().Add(time.Minute); ; { // the other member may take longer than a watch waits
		began = time.Now()
		answer := watch(clientv3.WithRev(1))
		switch {
		case answer.Err() != nil && time.Now().Before(end):
			heldFor(t, began, answer.Err())
			continue
		case answer.Err() != nil || len(answer.Events) != 1:
			t.Errorf("with another member %s later: %v, %d events", time.Since(began), answer.Err(), len(answer.Events))
		}
		return
	}
}

// heldFor checks that a watch that has ended was held until a leader could have come.
func heldFor(t *testing.T, began time.Time, err error) {
	t.Helper()
	if took := time.Since(began); !errors.Is(err, rpctypes.ErrNoLeader) || took < leaderWait {
		t.Fatalf("a watch ends after %s with %v", took, err)
	}
}

// TestChanges wants all that kube-apiserver writes with, and no reads, which another leader can answer.
func TestChanges(t *testing.T) {
	for request, want := range map[any]bool{
		&pb.PutRequest{}: true, &pb.DeleteRangeRequest{}: true, &pb.TxnRequest{}: true, &pb.LeaseGrantRequest{}: true, &pb.RangeRequest{}: false,
	} {
		if changes(request) != want {
			t.Errorf("%T is a write: %v", request, !want)
		}
	}
}

// TestStartMeanwhile starts a member again and again while the leadership goes to and fro between the two others for a while.
func TestStartMeanwhile(t *testing.T) {
	e, stop := cluster(t, 3)
	servers := [2]*etcdserver.EtcdServer{e[0].running.Server, e[1].running.Server}
	for range 10 {
		stop[2]()
		ctx, end := context.WithTimeout(t.Context(), 50*leaderPause)
		var mover sync.WaitGroup
		mover.Go(func() {
			for to := 0; ctx.Err() == nil; to = 1 - to {
				try, cancel := context.WithTimeout(ctx, leaderPause) // etcd looks only every 100 ms whether it was done
				_ = servers[1-to].MoveLeader(try, uint64(servers[1-to].MemberID()), uint64(servers[to].MemberID()))
				<-try.Done()
				cancel()
			}
		})
		stop[2] = mustRun(t, e[2])
		end()
		mover.Wait()
	}
}

const leaderPause = 10 * time.Millisecond
