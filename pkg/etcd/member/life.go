package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	serverversion "go.etcd.io/etcd/server/v3/etcdserver/version"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// life is one run of etcd's server, from its start to its end.
type life struct {
	*Etcd
	server *embed.Etcd
	fatal  <-chan error

	joining   bool // the cluster has just added the member
	again     bool // the previous run ended with errRestart
	resetting bool // the member becomes the only one
	sealed    bool // the database is what it was when it was closed in good order
}

// run waits for the member to become ready and for its end, and closes it.
func (l life) run(ctx context.Context, ready func()) error {
	work, stop := context.WithCancel(ctx)
	l.mu.Lock()
	l.ending = work.Done()
	l.mu.Unlock()
	steps := make(chan error, 2)
	go func() { // in parallel, because it may not notice that etcd has died
		err := l.becomeReady(work)
		steps <- err
		if err == nil {
			steps <- l.watchData(work)
		}
	}()
	err := l.await(ctx, steps, ready)
	stop()
	switch {
	case err == nil:
		l.handOver()
	case errors.Is(err, errRestart), errors.Is(err, errUnfinished):
		l.server.Server.HardStop() // Close would wait for the servers of clients, which wait until the member is ready
	case !errors.Is(err, errRemoved):
		return l.explain(err) // etcd's goroutines have ended or are stuck, so it is not closed
	}
	l.server.Close()
	l.closePeers()
	if err == nil {
		l.sealDatabase()
	}
	return err
}

// await returns nil when ctx is done, or the error that ends the member.
func (l life) await(ctx context.Context, steps <-chan error, ready func()) error {
	for {
		select {
		case err := <-steps:
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, errUnfinished) {
				return err
			}
			if err != nil {
				return l.cause(err)
			}
			ready()
		case err := <-l.fatal:
			return err
		case err := <-l.server.Err():
			return l.cause(err)
		case <-l.server.Server.StopNotify(): // the only reason for which etcd stops by itself
			return errRemoved
		case <-ctx.Done():
			return nil
		}
	}
}

// cause returns the cause of an error of a step or of serving clients: both also fail when the member stops.
func (l life) cause(err error) error {
	select {
	case err := <-l.fatal:
		return err
	default:
	}
	select {
	case <-l.server.Server.StoppingNotify():
		return errRemoved
	default:
		return err
	}
}

// becomeReady runs the steps until the member votes and answers.
func (l life) becomeReady(ctx context.Context) error {
	if l.joining || l.hadPeers() {
		if err := l.openPeers(); err != nil {
			return err
		}
	}
	if !l.joining && !l.resetting && l.Others != nil && l.Others.Known() {
		ctx2, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		go l.stillMember(ctx2, stop)
		ctx = ctx2
	}
	lifecycle.WaitingFor(ctx, "a leader among etcd's members")
	defer lifecycle.WaitingFor(ctx, "")
	if err := l.elect(ctx); err != nil {
		return err
	}
	if err := l.checkLog(); err != nil {
		return err
	}
	// This comes before the member has caught up, because the others need its address to send it the whole database.
	if !l.alone() {
		if err := l.publishURL(ctx); err != nil {
			return err
		}
	}
	if err := l.awaitPublished(ctx); err != nil {
		return err
	}
	if err := l.promote(ctx); err != nil {
		return err
	}
	// The leader may change meanwhile, which ends the read.
	err := lifecycle.Until(ctx, "a read that etcd's leader confirms", func(ctx context.Context) error { return readOnce(ctx, l.server) })
	if err != nil {
		return err
	}
	if err := decideVersion(ctx, l.server.Server); err != nil {
		return fmt.Errorf("deciding the version of the cluster: %w", err)
	}
	if err := l.checkStart(ctx); err != nil {
		return err
	}
	if l.resetting {
		return l.finishReset()
	}
	return nil
}

// alone reports whether the member is the only one. After a crash it does not know its members until it has applied the begin of its log.
func (l life) alone() bool {
	members := l.server.Server.Cluster().Members()
	if len(members) == 0 {
		return !l.joining && !l.hadPeers()
	}
	return len(members) == 1 && members[0].ID == l.server.Server.MemberID()
}

// handOver moves the leadership to another member, so that the cluster does not have to wait for an election timeout. If no member takes it,
// this one is stopped at once: etcd would try for another 7 s.
func (l life) handOver() {
	server := l.server.Server
	switch {
	case l.alone():
		return
	case server.Leader() == 0: // requests of clients hang, and Close would wait for them
		server.HardStop()
		return
	case server.Leader() != server.MemberID():
		return
	}
	for _, other := range server.Cluster().Members() {
		if other.ID == server.MemberID() || other.IsLearner {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
		err := server.MoveLeader(ctx, uint64(server.MemberID()), uint64(other.ID))
		cancel()
		if err == nil || server.Leader() != server.MemberID() {
			return
		}
	}
	server.HardStop()
}

// handOverTimeout is how long another member may take to become leader.
const handOverTimeout = 700 * time.Millisecond

// readOnce does a linearizable read, which succeeds if the member knows a leader and has caught up with it.
func readOnce(ctx context.Context, server *embed.Etcd) error {
	_, err := server.Server.Range(ctx, &pb.RangeRequest{Key: []byte("health")})
	return err
}

// decideVersion has the leader record the cluster's version, without which no other member can join. etcd does it when it becomes leader, but
// only 5 s later if that happens before its monitor listens (EtcdServer.monitorClusterVersions).
func decideVersion(ctx context.Context, server *etcdserver.EtcdServer) error {
	if server.ClusterVersion() != nil || server.Leader() != server.MemberID() {
		return nil
	}
	if err := serverversion.NewMonitor(zap.NewNop(), etcdserver.NewServerVersionAdapter(server)).UpdateClusterVersionIfNeeded(); err != nil {
		return err
	}
	for server.ClusterVersion() == nil {
		if err := lifecycle.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
