package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// runFunc is a Component made of a function.
type runFunc func(ctx context.Context, ready func()) error

// Run calls f.
func (f runFunc) Run(ctx context.Context, ready func()) error { return f(ctx, ready) }

// diary notes events in order.
type diary struct {
	mu     sync.Mutex
	events []string
}

func (d *diary) note(event string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event)
}

func (d *diary) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events[len(d.events)-1]
}

// part is a component that becomes ready after a while and writes what happens to it into the diary.
func (d *diary) part(name string, startup, shutdown time.Duration) runFunc {
	return func(ctx context.Context, ready func()) error {
		d.note(name + " starts")
		time.Sleep(startup)
		d.note(name + " ready")
		ready()
		<-ctx.Done()
		time.Sleep(shutdown)
		d.note(name + " stopped")
		return ctx.Err()
	}
}

func quiet() logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		g := &Group{Log: quiet()}
		store := g.Add("store", d.part("store", time.Second, time.Second))
		api := g.Add("api", d.part("api", time.Second, time.Second), store)
		g.Add("scheduler", d.part("scheduler", time.Second, 2*time.Second), api)
		g.Add("manager", d.part("manager", 2*time.Second, time.Second), api)

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-g.Ready()
			cancel()
		}()
		if err := g.Run(ctx); err != nil {
			t.Errorf("an ordinary stop returned %v", err)
		}
		for _, pair := range [][2]string{
			{"store ready", "api starts"}, {"api ready", "scheduler starts"}, {"api ready", "manager starts"},
			{"manager starts", "scheduler ready"}, // both start at the same time
			{"scheduler stopped", "api stopped"}, {"manager stopped", "api stopped"}, {"api stopped", "store stopped"},
		} {
			first, second := slices.Index(d.events, pair[0]), slices.Index(d.events, pair[1])
			if first < 0 || second < 0 || first > second {
				t.Errorf("%q should come before %q in %q", pair[0], pair[1], d.events)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		part runFunc
		want string
	}{
		"error":                       {func(context.Context, func()) error { return boom }, "part: boom"},
		"a cancelled call of its own": {func(context.Context, func()) error { return fmt.Errorf("asking: %w", context.Canceled) }, "part: asking: context canceled"},
		"silent end":                  {func(context.Context, func()) error { return nil }, "part: ended unexpectedly"},
		"panic":                       {func(context.Context, func()) error { panic("oh no") }, "part: panic: oh no"},
		"end after ready":             {func(_ context.Context, ready func()) error { ready(); return boom }, "part: boom"},
		"ready many times":            {func(_ context.Context, ready func()) error { ready(); ready(); return boom }, "part: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				g := &Group{Log: quiet()}
				base := g.Add("base", d.part("base", 0, 0))
				part := g.Add("part", c.part, base)
				g.Add("other", d.part("other", 0, 0), base)
				g.Add("never", runFunc(func(ctx context.Context, ready func()) error {
					<-ctx.Done()
					return nil
				}), part)
				err := g.Run(t.Context())
				if err == nil || err.Error() != c.want {
					t.Errorf("got %v, want %s", err, c.want)
				}
				if !slices.Contains(d.events, "base stopped") {
					t.Errorf("the others were not stopped: %q", d.events)
				}
				if s := g.Status()[1]; s.State != Failed || s.Error == "" {
					t.Errorf("the failed part's status is %+v", s)
				}
			})
		})
	}
}

func TestDeafPartIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{Log: quiet(), StopTimeout: 3 * time.Second}
		end := make(chan struct{})
		g.Add("deaf", runFunc(func(_ context.Context, ready func()) error {
			ready()
			<-end
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-g.Ready()
			cancel()
		}()
		began := time.Now()
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("waited %s for a deaf part", took)
		}
		close(end)
	})
}

func TestReportNamesWhatIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := logrus.New()
		logger.SetOutput(&log)
		g := &Group{Log: logger}
		slow := g.Add("slow", runFunc(func(ctx context.Context, ready func()) error {
			return Until(ctx, "the moon", func(context.Context) error { return errors.New("not full") })
		}))
		g.Add("later", runFunc(func(ctx context.Context, ready func()) error { return nil }), slow)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		_ = g.Run(ctx)
		if got := strings.Count(log.String(), "still waiting"); got != 2 {
			t.Errorf("%d reports in 25 seconds", got)
		}
		for _, want := range []string{"the moon, last: not full", "later (needs slow)"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the report does not say %q:\n%s", want, log.String())
			}
		}
	})
}

func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := logrus.New()
		logger.SetOutput(&log)
		var d diary
		g := &Group{Log: logger}
		open := make(chan struct{})
		api := g.Add("api", d.part("api", time.Second, 0))
		lead := g.Add("lead", runFunc(func(ctx context.Context, ready func()) error {
			StandBy(ctx, "b leads")
			select {
			case <-open:
			case <-ctx.Done():
				return nil
			}
			ready()
			StandBy(ctx, "too late")
			<-ctx.Done()
			d.note("lead stopped")
			return nil
		}), api)
		slow := g.Add("slow", d.part("slow", 5*time.Second, 0), api)
		behind := g.Add("behind", d.part("behind", time.Second, 0), lead, slow)
		g.Add("far behind", d.part("far behind", time.Second, time.Second), behind)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		began, ready := time.Now(), g.Ready()
		go func() { ended <- g.Run(ctx) }()
		<-ready
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("ready after %s, want 6s: when all are that nobody holds up", took)
		}
		states := func() (words []string) {
			for _, s := range g.Status() {
				words = append(words, string(s.State)+strings.TrimRight(" "+s.Waiting, " "))
			}
			return words
		}
		time.Sleep(time.Minute)
		if got, want := states(), []string{"ready", "standby b leads", "ready", "standby", "standby"}; !slices.Equal(got, want) {
			t.Errorf("the states are %q, want %q", got, want)
		}
		if strings.Contains(log.String(), "still waiting") || Pending(g.Status()) != "" {
			t.Errorf("somebody is awaited: %s\n%s", Pending(g.Status()), log.String())
		}
		close(open)
		time.Sleep(3 * time.Second)
		if got, want := states(), []string{"ready", "ready", "ready", "ready", "ready"}; !slices.Equal(got, want) {
			t.Errorf("the states are %q, want %q", got, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if far, lead := slices.Index(d.events, "far behind stopped"), slices.Index(d.events, "lead stopped"); far < 0 || lead < far {
			t.Errorf("the gate stopped before what is behind it: %q", d.events)
		}
	})
}

func TestOnChangeSeesTheLastState(t *testing.T) {
	var last []Status
	g := &Group{Log: quiet(), OnChange: func(s []Status) { last = s }}
	var d diary
	a := g.Add("a", d.part("a", 0, 0))
	g.Add("b", d.part("b", 0, 0), a)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-g.Ready()
		cancel()
	}()
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range last {
		if s.State != Stopped || s.Ready.Before(s.Started) || s.Ended.Before(s.Ready) {
			t.Errorf("the last status is %+v", s)
		}
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := Until(t.Context(), "luck", func(context.Context) error {
			if tries++; tries < 5 {
				return errors.New("no")
			}
			return nil
		})
		if err != nil || tries != 5 {
			t.Errorf("%v after %d tries", err, tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = Until(ctx, "luck", func(context.Context) error { return errors.New("never") })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for luck") || !strings.Contains(err.Error(), "never") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("it slept %s: %v", time.Since(began), err)
		}
		why := errors.New("the house is on fire")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if err := Sleep(ctx, time.Minute); !errors.Is(err, why) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("it slept %s in all: %v", time.Since(began), err)
		}
	})
}

// TestUntilSlowsDown: tries follow each other at once at first, and later a quarter of a second apart.
func TestUntilSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first, all := 0, 0
		began := time.Now()
		_ = Until(ctx, "nothing", func(context.Context) error {
			if all++; time.Since(began) < 100*time.Millisecond {
				first++
			}
			return errors.New("not yet")
		})
		if first < 5 || all > 280 {
			t.Errorf("%d tries in the first tenth of a second, %d in a minute", first, all)
		}
	})
}

// TestStopAfterFailure: a unit hears whether its group was asked to end or ends for a failure, and does not wait long for answers of one that has failed.
func TestStopAfterFailure(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := &Group{Log: quiet()}
			store := g.Add("store", runFunc(func(ctx context.Context, ready func()) error {
				ready()
				if fails {
					time.Sleep(time.Second)
					return errors.New("the disk is gone")
				}
				<-ctx.Done()
				return nil
			}))
			waits := func(failure *error) runFunc {
				return func(ctx context.Context, ready func()) error {
					ready()
					<-ctx.Done()
					if *failure = Failure(ctx); !errors.Is(context.Cause(ctx), context.Canceled) {
						t.Errorf("the cause is no cancellation: %v", context.Cause(ctx))
					}
					time.Sleep(5 * time.Second)
					return nil
				}
			}
			var api, other error
			g.Add("api", waits(&api), store)
			g.Add("other", waits(&other))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !fails {
				go func() {
					<-g.Ready()
					cancel()
				}()
			}
			began := time.Now()
			err := g.Run(ctx)
			took := time.Since(began)
			synctest.Wait()
			if (err != nil) != fails || took.Truncate(5*time.Second) != 5*time.Second {
				t.Errorf("it ended after %s with %v", took, err)
			}
			if s := g.Status(); fails && s[1].Ended.Sub(s[0].Ended) != forlornTimeout {
				t.Errorf("the API server was stopped after %s", s[1].Ended.Sub(s[0].Ended))
			}
			for name, got := range map[string]error{"api": api, "other": other} {
				if fails != (got != nil) || fails && got.Error() != "store: the disk is gone" {
					t.Errorf("%s, failure %t: it hears %v", name, fails, got)
				}
			}
		})
	}
}
