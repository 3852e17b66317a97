package member

import (
	"context"
	"errors"
	"expvar"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
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

// errAgain says that etcd is to be started once more, with the data that it has now.
var errAgain = errors.New("etcd has got the whole database and starts again")

// awaitPublished returns when the member has written its name into the cluster's data, which makes etcd serve clients.
//
// A member that gets a whole database from the leader does not see what became of its own write, because that is part
// of the database: it would wait for seven seconds. And if it was thousands of entries behind, it believes that it
// still is until the next entry comes, and accepts no writes, this one neither. A new start with the data helps in
// both cases; it is tried once.
func (l life) awaitPublished(ctx context.Context) error {
	replaced := make(chan struct{})
	if !l.alone() && !l.again {
		go l.watchReplacement(ctx, replaced)
	}
	published := l.server.Server.ReadyNotify()
	select {
	case <-published:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-replaced:
	}
	select { // it may just have made it
	case <-published:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(publishPatience):
		return errAgain
	}
}

// watchReplacement closes the channel when the member has got a whole database: the data is newer then, although the
// member has applied no entry of the log that would have changed it. Should an entry come in between, a read that sees
// every write tells at least that the member has caught up.
func (l life) watchReplacement(ctx context.Context, replaced chan<- struct{}) {
	defer close(replaced)
	server := l.server.Server
	revision, applied := server.KV().Rev(), server.AppliedIndex()
	caughtUp := make(chan struct{})
	go func() {
		for ctx.Err() == nil && readOnce(ctx, l.server) != nil {
			_ = lifecycle.Sleep(ctx, publishPatience)
		}
		_ = lifecycle.Sleep(ctx, publishPatience)
		close(caughtUp)
	}()
	for {
		index := server.AppliedIndex()
		if now := server.KV().Rev(); now != revision && index == applied && server.AppliedIndex() == applied {
			return
		}
		if index != applied {
			revision, applied = server.KV().Rev(), index
		}
		select {
		case <-caughtUp:
			return
		case <-time.After(electionRetry):
		}
	}
}

// publishPatience is how long the write may take after the member has caught up.
const publishPatience = 100 * time.Millisecond

// promote has a learner made a voting member as soon as it has caught up. A read that sees every write returns at that
// moment.
func (l life) promote(ctx context.Context) error {
	server := l.server.Server
	for server.IsLearner() {
		err := readOnce(ctx, l.server)
		if err == nil {
			try, cancel := context.WithTimeout(ctx, updateTimeout)
			_, err = server.PromoteMember(try, uint64(server.MemberID()))
			cancel()
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
