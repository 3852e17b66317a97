package member

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// answer is the probe of whether the member lives: a read that needs no quorum and no other member. While the database is defragmented, which may take
// minutes on a slow disk, nothing can be read, and it is not asked.
func (e *Etcd) answer(ctx context.Context) error {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running == nil || e.defragmenting.Load() > 0 {
		return nil
	}
	_, err := running.Server.Range(ctx, &pb.RangeRequest{Key: []byte("health"), Serializable: true})
	return err
}

// noteDefragment counts requests to defragment the database.
func (e *Etcd) noteDefragment(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, ok := request.(*pb.DefragmentRequest); ok {
		e.defragmenting.Add(1)
		defer e.defragmenting.Add(-1)
	}
	return handler(ctx, request)
}
