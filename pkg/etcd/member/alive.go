package member

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// noteDefragment counts requests to defragment the database. They fail while it is copied: they would wait for that, and have all reads and writes wait.
func (e *Etcd) noteDefragment(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, ok := request.(*pb.DefragmentRequest); ok {
		e.defragmenting.Add(1)
		defer e.defragmenting.Add(-1)
		if !e.copying.TryLock() {
			return nil, status.Error(codes.Unavailable, "a backup copies the database: try again later")
		}
		defer e.copying.Unlock()
	}
	return handler(ctx, request)
}
