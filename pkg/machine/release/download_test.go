package release

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// body sends a byte after each of its pauses.
type body struct {
	ctx    context.Context
	pauses []time.Duration
}

func (b *body) Read([]byte) (int, error) {
	select {
	case <-time.After(b.pauses[0]):
		b.pauses = b.pauses[1:]
		return 1, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (b *body) Close() error { return nil }

// TestStall: a slow download may take longer than the time limit, as long as no single pause does.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 30 * time.Second
		silent := errors.New("sent nothing")
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(stall, func() { cancel(silent) })
		d := &download{&body{ctx, []time.Duration{20 * time.Second, 20 * time.Second, 20 * time.Second, 40 * time.Second}}, ctx, timer, stall, cancel}
		defer d.Close()
		for range 3 {
			if n, err := d.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatalf("read %d, %v", n, err)
			}
		}
		if _, err := d.Read(make([]byte, 1)); !errors.Is(err, silent) {
			t.Errorf("after 40 s of silence: %v", err)
		}
	})
}
