package supervise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// fake is an instance that does what its program's arguments say, in fake time.
type fake struct {
	id   int
	ends chan string
	over sync.Once
	deaf bool
	log  func(string)
}

func (f *fake) pid() int { return f.id }

func (f *fake) signal(s syscall.Signal) {
	if s == syscall.SIGTERM && f.deaf {
		return
	}
	f.log(unix.SignalName(s))
	f.over.Do(func() { f.ends <- "was killed" })
}

func (f *fake) wait() (string, bool) {
	how := <-f.ends
	return how, how != "was killed"
}

// stage launches fakes. Each start is noted with the time since the stage was set.
type stage struct {
	mu     sync.Mutex
	began  time.Time
	events []string
	starts map[string][]time.Duration
	script func(program string, start int, f *fake) error
	last   int
}

func newStage(script func(program string, start int, f *fake) error) *stage {
	return &stage{began: time.Now(), starts: map[string][]time.Duration{}, script: script}
}

func (g *stage) launch(p Program, _ func(string)) (instance, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	f := &fake{id: g.last, ends: make(chan string, 1)}
	f.log = func(s string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.events = append(g.events, p.Name+" "+s)
	}
	g.starts[p.Name] = append(g.starts[p.Name], time.Since(g.began))
	if err := g.script(p.Name, len(g.starts[p.Name]), f); err != nil {
		return nil, err
	}
	return f, nil
}

func ignoreLine(string, string)  {}
func ignoreChange([]state.Child) {}

// endsAfter makes an instance exit by itself.
func (f *fake) endsAfter(d time.Duration) {
	time.AfterFunc(d, func() { f.over.Do(func() { f.ends <- "ended" }) })
}

func TestBackoffGrowsAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Supervisor
		g := newStage(func(_ string, start int, f *fake) error {
			time.AfterFunc(time.Millisecond, func() { s.notified(f.id, message{ready: true}) })
			if start == 7 {
				f.endsAfter(30 * time.Second)
			} else {
				f.endsAfter(time.Second)
			}
			return nil
		})
		s = &Supervisor{Programs: []Program{{Name: "a"}}, launch: g.launch, Line: ignoreLine, OnChange: ignoreChange}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 0}
		var at time.Duration
		for i, delay := range want {
			at += delay
			if g.starts["a"][i] != at {
				t.Fatalf("start %d at %s, want %s", i+1, g.starts["a"][i], at)
			}
			if at += time.Second; i == 6 {
				at += 29 * time.Second
			}
		}
	})
}

func TestGivesUpOnWhatNeverWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(func(program string, _ int, f *fake) error {
			if program == "b" {
				f.endsAfter(time.Second)
			}
			return nil
		})
		s := &Supervisor{Programs: []Program{{Name: "a"}, {Name: "b"}}, launch: g.launch, Line: ignoreLine, OnChange: ignoreChange}
		err := s.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "b failed 3 times") {
			t.Errorf("error %v", err)
		}
		if want := []string{"a SIGTERM"}; !slices.Equal(g.events, want) {
			t.Errorf("events %q, want %q", g.events, want)
		}
	})
}

func TestBeingKilledIsNoReasonToGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(func(_ string, start int, f *fake) error {
			if start <= 10 {
				time.AfterFunc(time.Millisecond, func() { f.signal(syscall.SIGKILL) })
			}
			return nil
		})
		s := &Supervisor{Programs: []Program{{Name: "a"}}, launch: g.launch, Line: ignoreLine, OnChange: ignoreChange}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(g.starts["a"]); n != 11 {
			t.Errorf("%d starts, want 11", n)
		}
	})
}

func TestStopOrder(t *testing.T) {
	deafB := func(program string, _ int, f *fake) error {
		f.deaf = program == "b"
		return nil
	}
	for _, c := range []struct {
		name   string
		script func(string, int, *fake) error
		hurry  bool
		want   []string
		took   time.Duration
	}{
		{"reverse", func(string, int, *fake) error { return nil }, false, []string{"b SIGTERM", "a SIGTERM"}, 0},
		{"deaf", deafB, false, []string{"b SIGKILL", "a SIGTERM"}, 30*time.Second - 7500*time.Millisecond},
		{"hurry", deafB, true, []string{"a SIGTERM", "b SIGKILL"}, 4 * time.Second},
		{"not started", func(string, int, *fake) error { return errors.New("no such file") }, false, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newStage(c.script)
				s := &Supervisor{Programs: []Program{{Name: "a"}, {Name: "b"}}, launch: g.launch, GiveUp: 100, Hurry: make(chan struct{}), Line: ignoreLine, OnChange: ignoreChange}
				ctx, cancel := context.WithCancel(t.Context())
				var stopping time.Time
				go func() {
					time.Sleep(5 * time.Second)
					stopping = time.Now()
					cancel()
					if c.hurry {
						time.Sleep(time.Second)
						close(s.Hurry)
					}
				}()
				if err := s.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(stopping); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				synctest.Wait()
				if !slices.Equal(g.events, c.want) {
					t.Errorf("events %q, want %q", g.events, c.want)
				}
			})
		})
	}
}
