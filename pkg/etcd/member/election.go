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

// elect returns when the member knows a leader. An only member gets a message to become leader now, the one with which a leader hands over:
// by itself it would wait for up to two election timeouts for another leader. If there are other members, which may be known only after the
// log was read, elect opens the peer port.
func (l life) elect(ctx context.Context) error {
	server := l.server.Server
	self := uint64(server.MemberID())
	for server.Leader() == 0 {
		if l.unfinished() {
			return errUnfinished
		}
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

// errUnfinished is the error of a first member whose log has no entry, because its very first start was interrupted.
var errUnfinished = errors.New("etcd's first start was interrupted")

// unfinished reports whether the log of a first member has not even the entry that makes it a member: etcd then waits for ever. Its
// commit index is saved together with that entry, so nothing was written yet, and the database has no revision.
func (l life) unfinished() bool {
	status, ok := raftStatus()
	return ok && status.ID == uint64(l.server.Server.MemberID()) && status.GetCommit() == 0 && l.server.Server.KV().Rev() <= 1 &&
		!l.joining && !l.hadPeers() && len(l.server.Server.Cluster().Members()) == 0
}

const electionRetry = 5 * time.Millisecond

// caughtUp reports whether raft has applied the entries that were committed before the start. A candidate looks for changes of the
// membership among unapplied entries, and panics if the log was compacted meanwhile.
func caughtUp() bool {
	status, ok := raftStatus()
	return ok && status.Applied >= status.GetCommit()
}

// raftStatus returns raft's state, to which expvar is the only access.
func raftStatus() (raft.Status, bool) {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return raft.Status{}, false
	}
	status, ok := published.Value().(raft.Status)
	return status, ok
}

// errRestart is the error of a member that must be started again with its present data.
var errRestart = errors.New("etcd has received the whole database and starts again")

// awaitPublished returns when the member has published its name in the cluster's data, after which etcd serves clients.
//
// A member that receives the whole database from the leader does not see the result of its own write, which is part of the database, and
// waits for 7 s. If it was thousands of entries behind, it rejects all writes, its own included, until the next entry arrives. A restart
// with the new data helps in both cases. It is tried once.
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
	select { // it may have been published meanwhile
	case <-published:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(publishGrace):
		return errRestart
	}
}

// watchReplacement closes the channel when the member has received the whole database: the revision is then higher although no log entry
// was applied. If an entry arrives at the same time that is not visible, so the channel is also closed after a linearizable read, which
// shows that the member has caught up.
func (l life) watchReplacement(ctx context.Context, replaced chan<- struct{}) {
	defer close(replaced)
	server := l.server.Server
	revision, applied := server.KV().Rev(), server.AppliedIndex()
	caughtUp := make(chan struct{})
	go func() {
		for ctx.Err() == nil && readOnce(ctx, l.server) != nil {
			_ = lifecycle.Sleep(ctx, publishGrace)
		}
		_ = lifecycle.Sleep(ctx, publishGrace)
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

// publishGrace is how long the write may take after the member has caught up.
const publishGrace = 100 * time.Millisecond

// promote makes a learner a voting member as soon as it has caught up, which is when a linearizable read returns.
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
			// The leader has agreed. The member learns it from the log.
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
