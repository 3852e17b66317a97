package etcd

import (
	"context"
	"errors"
	"expvar"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/coracle-dev/coracle/pkg/lifecycle"
)

// elect returns when the member knows a leader. An only member is told to become leader now: by itself it would wait
// for up to two election timeouts for a leader that cannot be. The message is the one with which a leader hands over.
// Where others are members or may be, it lets them in. That there are others may be known only after the log was read.
func (l life) elect(ctx context.Context) error {
	server := l.server.Server
	self := uint64(server.MemberID())
	for server.Leader() == 0 {
		message := raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: &self, From: &self}
		if !l.alone() {
			if err := l.openPeers(); err != nil {
				return err
			}
		} else if caughtUp() && server.Process(ctx, &message) != nil {
			return nil // it will elect itself after the timeout
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-server.StoppingNotify():
			return errRemoved
		case <-time.After(electionRetry): // refused while the log of a new member is applied
		}
	}
	return nil
}

const electionRetry = 5 * time.Millisecond

// caughtUp reports whether raft has applied what it had committed before the start. A candidate looks for changes of
// the membership in what is not applied yet, and panics if the log was compacted meanwhile. etcd tells raft's state
// nowhere else.
func caughtUp() bool {
	told, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := told.Value().(raft.Status)
	return ok && status.Applied >= status.GetCommit()
}

// awaitPublished returns when the member has written its name into the cluster's data.
//
// A member that got a whole database seems to itself to be thousands of entries behind until the next entry comes, and
// accepts no writes, this one neither. In a cluster that is idle it has to make that entry: a change of the membership
// that changes nothing is not refused.
func (l life) awaitPublished(ctx context.Context) error {
	server := l.server.Server
	for {
		select {
		case <-server.ReadyNotify():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(publishPatience):
		}
		if server.CommittedIndex() > server.AppliedIndex()+catchUpAlone && server.Cluster().Member(server.MemberID()) != nil {
			try, cancel := context.WithTimeout(ctx, publishPatience)
			_ = l.writeURL(try) // if it comes to nothing, another one will
			cancel()
		}
	}
}

const publishPatience = time.Second

// promote has a learner made a voting member as soon as it has caught up. A read that sees every write returns at that
// moment.
func (l life) promote(ctx context.Context) error {
	server := l.server.Server
	for server.IsLearner() {
		err := readOnce(ctx, l.server)
		if err == nil {
			_, err = server.PromoteMember(ctx, uint64(server.MemberID()))
		}
		if err == nil {
			// The leader has agreed; the member itself hears of it with the log.
			err = readOnce(ctx, l.server)
		}
		if err != nil && !errors.Is(err, etcderrors.ErrLearnerNotReady) {
			lifecycle.WaitingFor(ctx, "a vote in the cluster's etcd, last: "+err.Error())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-server.StoppingNotify():
			return errRemoved
		case <-time.After(promotionRetry):
		}
	}
	return nil
}

const promotionRetry = 20 * time.Millisecond
