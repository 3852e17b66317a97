package etcd

import (
	"context"
	"expvar"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// elect has the only member become leader now. By itself it would wait for up to two election timeouts for a leader
// that cannot be, and a short timeout instead would cost wake-ups for ever: etcd counts it in ticks. The message is
// the one with which a leader hands over.
func elect(ctx context.Context, server *etcdserver.EtcdServer) {
	if len(server.Cluster().Members()) > 1 {
		return // others may have a leader
	}
	self := uint64(server.MemberID())
	for server.Leader() == 0 {
		message := raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: &self, From: &self}
		if caughtUp() && server.Process(ctx, &message) != nil {
			return // it will elect itself after the timeout
		}
		select {
		case <-ctx.Done():
			return
		case <-server.StoppingNotify():
			return
		case <-time.After(electionRetry): // refused while the log of a new member is applied
		}
	}
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
