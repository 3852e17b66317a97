package member

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
)

// TestAliveWithoutQuorum: a member that cannot serve because the others are gone is not one that hangs.
func TestAliveWithoutQuorum(t *testing.T) {
	e, stop := cluster(t, 3)
	stop[1]()
	stop[2]()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := e[0].answer(ctx)
		if ctx.Err() != nil {
			t.Fatalf("no answer: %v", err)
		}
		cancel()
	}
}

// TestAliveWhileDefragmenting: nothing can be read then, and that is no hang.
func TestAliveWhileDefragmenting(t *testing.T) {
	e := &Etcd{}
	if err := e.answer(t.Context()); err != nil {
		t.Errorf("before the start: %v", err)
	}
	e.running = &embed.Etcd{} // without a server: to ask it is a panic
	asks := func() (asked bool) {
		defer func() { asked = recover() != nil }()
		_ = e.answer(t.Context())
		return false
	}
	for _, c := range []struct {
		request any
		asks    bool
	}{{&pb.DefragmentRequest{}, false}, {&pb.StatusRequest{}, true}} {
		_, _ = e.noteDefragment(t.Context(), c.request, nil, func(context.Context, any) (any, error) {
			if asks() != c.asks {
				t.Errorf("during %T the server is asked: %v", c.request, !c.asks)
			}
			return nil, nil
		})
		if !asks() {
			t.Errorf("after %T the server is not asked", c.request)
		}
	}
}
