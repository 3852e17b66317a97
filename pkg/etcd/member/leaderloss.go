package member

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/grpc"
)

// writeGrace is how long a write may still take after another leader was elected. Writes that waited for the election take
// a fraction of it.
const writeGrace = time.Second

var errLeaderLost = errors.New("the write was on its way to a leader that is gone")

// endLostWrites ends writes early that were lost together with their leader. A member forwards a write to the leader and
// never learns that it was lost: EtcdServer.processInternalRaftRequestOnce waits for ReqTimeout, seven seconds here, although
// another leader is elected after one or two. The client gets etcd's own error for this case, which says that the outcome is
// unknown. This can go when etcd fails forwarded proposals at a change of the leader.
func (e *Etcd) endLostWrites(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	server := e.clustered()
	if server == nil || !changes(request) {
		return handler(ctx, request)
	}
	elected := server.LeaderChangedNotify()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-elected:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(writeGrace):
			cancel(errLeaderLost)
		case <-ctx.Done():
		}
	}()
	response, err := handler(ctx, request)
	if err != nil && errors.Is(context.Cause(ctx), errLeaderLost) {
		err = rpctypes.ErrGRPCTimeoutDueToLeaderFail
	}
	return response, err
}

// leaderWait is how long a watch waits for a leader before it fails.
const leaderWait = 2 * time.Second

// holdStreams makes new watches wait for a leader. Without one etcd refuses them at once, and kube-apiserver's etcd client
// tries again at once, which keeps a processor busy and fills the log. This can go when that client waits between attempts.
func (e *Etcd) holdStreams(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if server := e.clustered(); server != nil {
		elected := server.LeaderChangedNotify()
		if server.Leader() == 0 {
			timer := time.NewTimer(leaderWait)
			defer timer.Stop()
			select {
			case <-elected:
			case <-timer.C:
			case <-stream.Context().Done():
			}
		}
	}
	return handler(service, stream)
}

// clustered is the running member, nil if it is the only one.
func (e *Etcd) clustered() *etcdserver.EtcdServer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil || e.opened == nil {
		return nil
	}
	return e.running.Server
}

// changes reports whether a request has to go through the leader's log.
func changes(request any) bool {
	switch request.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest, *pb.LeaseGrantRequest:
		return true
	}
	return false
}
