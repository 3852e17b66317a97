package servicelb

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// errNone is a node that has no connection to this server.
var errNone = errors.New("no connection")

// TestPulses pings a node that changes its behaviour, and says when it counts as lost.
func TestPulses(t *testing.T) {
	answers := func(context.Context, string) error { return nil }
	hangs := func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	gone := func(context.Context, string) error { return errNone }
	for _, test := range []struct {
		title      string
		first, now func(context.Context, string) error
		lostAfter  time.Duration // 0: never
	}{
		{"it answers", answers, answers, 0},
		{"it falls silent", answers, hangs, 6 * time.Second},
		{"its connection ends", answers, gone, 17 * time.Second},
		{"it never had a connection", gone, gone, 0},
		{"it is silent from the start", hangs, hangs, 6 * time.Second},
	} {
		t.Run(test.title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var ping atomic.Value
				ping.Store(test.first)
				changes := make(chan struct{}, 10)
				ps := &liveness{
					ping: func(ctx context.Context, node string) error {
						return ping.Load().(func(context.Context, string) error)(ctx, node)
					},
					noConnection: func(err error) bool { return errors.Is(err, errNone) },
					changed:      func() { changes <- struct{}{} },
				}
				ps.follow(ctx, []string{"a"})
				time.Sleep(time.Millisecond)
				ping.Store(test.now)
				began := time.Now()
				if test.lostAfter == 0 {
					time.Sleep(time.Minute)
					if len(ps.lost()) > 0 || len(changes) > 0 {
						t.Fatalf("lost are %v", ps.lost())
					}
					return
				}
				<-changes
				if took := time.Since(began); took > test.lostAfter || !ps.lost()["a"] {
					t.Errorf("after %s lost are %v", took, ps.lost())
				}
				ping.Store(answers)
				began = time.Now()
				<-changes
				if took := time.Since(began); took > 3*time.Second || ps.lost()["a"] {
					t.Errorf("it answers again; after %s lost are %v", took, ps.lost())
				}
				ps.follow(ctx, nil) // the goroutine must end, or the test does not
				if len(ps.lost()) > 0 {
					t.Errorf("nobody is followed, and lost are %v", ps.lost())
				}
			})
		})
	}
}
