package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// tellKey is the context key of a unit's told.
type tellKey struct{}

// told holds the functions by which a unit reports to its group.
type told struct {
	waiting, standby func(string)
	withdraw         func(error) error
	probed           func(Probe)
	settings         func(any)
}

// WaitingFor reports what ctx's unit waits for. An empty text ends the wait.
func WaitingFor(ctx context.Context, what string) {
	if t, ok := ctx.Value(tellKey{}).(told); ok {
		t.waiting(what)
	}
}

// StandBy reports that ctx's unit may not become ready for a long time although nothing is wrong, for example because
// another server leads. The group is then ready without the unit and without those that need it. coracle status shows why.
// The unit calls ready when it becomes ready.
func StandBy(ctx context.Context, why string) {
	if t, ok := ctx.Value(tellKey{}).(told); ok {
		t.standby(why)
	}
}

// standBy records that u stands by, unless u is ready already or stops. With withdrawn it does so in any case.
func (g *Group) standBy(u *Unit, why string, withdrawn bool) {
	var does bool
	g.set(u, func(s *Status) {
		does = withdrawn || s.State == Waiting || s.State == Starting || s.State == Standby
		if !does {
			return
		}
		if s.Standby.IsZero() && s.Ready.IsZero() {
			s.Standby = time.Now()
		}
		s.State, s.Waiting = Standby, why
	})
	if does {
		u.stoodBy.Do(func() { close(u.standby) })
	}
}

// The pauses of Until: short at first because most starts are short.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	tryTimeout = 5 * time.Second
)

// Until probes until the probe succeeds or ctx is done, for things that offer no event to wait on. Each try has
// five seconds. The group's reports and the returned error have what is awaited and the last error.
func Until(ctx context.Context, what string, probe func(context.Context) error) error {
	return UntilPaced(ctx, what, probe, func(since time.Duration) time.Duration {
		return min(max(since/8, firstPause), lastPause)
	})
}

// UntilPaced is Until with a pause after each try that depends on the time since the first one.
func UntilPaced(ctx context.Context, what string, probe func(context.Context) error, pause func(time.Duration) time.Duration) error {
	defer WaitingFor(ctx, "")
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		err := probe(try)
		cancel()
		if err == nil {
			return nil
		}
		WaitingFor(ctx, fmt.Sprintf("%s, last: %v", what, err))
		if Sleep(ctx, pause(time.Since(began))) != nil {
			return fmt.Errorf("waiting for %s: %w, last: %w", what, context.Cause(ctx), err)
		}
	}
}

// Sleep waits for d. It returns early, with the cause, when ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report logs every ReportEvery which units are not ready, until all are or the returned function is called.
func (g *Group) report(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ready := g.Ready()
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(g.ReportEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ready:
				return
			case <-tick.C:
				g.Log.Info("still waiting: " + Pending(g.Status()))
			}
		}
	})
	return func() {
		cancel()
		reporter.Wait()
	}
}

// Pending returns one line about the units that are not ready yet, with what each waits for.
func Pending(all []Status) string {
	var parts []string
	for _, s := range all {
		switch {
		case s.State == Starting && s.Waiting != "":
			parts = append(parts, fmt.Sprintf("%s (%s: %s)", s.Name, since(s.Began()), s.Waiting))
		case s.State == Starting:
			parts = append(parts, fmt.Sprintf("%s (%s)", s.Name, since(s.Began())))
		case s.State == Waiting:
			parts = append(parts, fmt.Sprintf("%s (needs %s)", s.Name, strings.Join(s.Needs, ", ")))
		}
	}
	return strings.Join(parts, ", ")
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
