package lifecycle

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// probed is a component with a probe, which may never become ready.
type probed struct {
	probe Probe
	never bool
}

func (p probed) Run(ctx context.Context, ready func()) error {
	ProbeWith(ctx, p.probe)
	if !p.never {
		ready()
	}
	<-ctx.Done()
	return nil
}

func TestProbe(t *testing.T) {
	busy := func(context.Context) error { return errors.New("no quorum") }
	slow := func(ctx context.Context) error { return Sleep(ctx, 19*time.Second) }
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	deaf := func(context.Context) error { time.Sleep(time.Hour); return nil }
	for _, c := range []struct {
		name  string
		parts map[string]probed
		want  string
	}{
		{"nobody to ask", nil, ""},
		{"every answer counts", map[string]probed{"a": {probe: busy}, "b": {probe: slow}}, ""},
		{"silence", map[string]probed{"a": {probe: busy}, "b": {probe: silent}}, "no answer from b"},
		{"silence, and one that does not care for time", map[string]probed{"a": {probe: silent}, "b": {probe: deaf}}, "no answer from a, b"},
		{"not ready", map[string]probed{"a": {probe: silent, never: true}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			test := func(t *testing.T) {
				quiet := logrus.New()
				quiet.SetOutput(io.Discard)
				g := &Group{Log: quiet, ReportEvery: time.Hour}
				for name, p := range c.parts {
					g.Add(name, p)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- g.Run(ctx) }()
				synctest.Wait()
				try, cancel := context.WithTimeout(ctx, 20*time.Second)
				err := g.Probe(try)
				cancel()
				if err == nil && c.want != "" || err != nil && err.Error() != c.want {
					t.Errorf("error %v, want %q", err, c.want)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Hour) // until the deaf one has ended
			}
			synctest.Test(t, test)
		})
	}
}
