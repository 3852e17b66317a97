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

// settle is how long a write may still take after another leader was elected. Those that waited for that moment are
// done in a fraction of it.
const settle = time.Second

var errLeaderLost = errors.New("the write was on its way to a leader that is gone")

// giveUp ends writes early whose leader has died with them. A member hands a write on to the leader and never learns
// that it got lost: etcd has the client wait for seven seconds, although there is another leader after one or two.
// The client is told what etcd would have told it: that the outcome is unknown.
func (e *Etcd) giveUp(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	server := e.amongOthers()
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
		case <-time.After(settle):
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

// hold is how long a watch waits for a leader before it fails.
const hold = 2 * time.Second

// holdStreams lets watches wait for a leader. etcd refuses them at once while there is none, and kube-apiserver asks
// again at once, which keeps a processor busy and fills the log.
func (e *Etcd) holdStreams(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if server := e.amongOthers(); server != nil {
		elected := server.LeaderChangedNotify()
		if server.Leader() == 0 {
			timer := time.NewTimer(hold)
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

// amongOthers is the running member, nil if it is alone.
func (e *Etcd) amongOthers() *etcdserver.EtcdServer {
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
