package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	e.mu.Lock()
	server, opened := e.running, e.opened
	e.mu.Unlock()
	if server == nil || opened == nil || !changes(request) {
		return handler(ctx, request)
	}
	elected := server.Server.LeaderChangedNotify()
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

// changes reports whether a request has to go through the leader's log.
func changes(request any) bool {
	switch request.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest, *pb.LeaseGrantRequest:
		return true
	}
	return false
}
