package supervise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// puppet is an instance that only ends when it gets one of the signals.
type puppet struct {
	number int
	endsAt []syscall.Signal
	once   sync.Once
	end    chan struct{}
	got    chan syscall.Signal
}

func (p *puppet) pid() int { return p.number }

func (p *puppet) signal(s syscall.Signal) {
	p.got <- s
	if slices.Contains(p.endsAt, s) {
		p.once.Do(func() { close(p.end) })
	}
}

func (p *puppet) wait() (string, bool) {
	<-p.end
	return exited(2), true // as Go's runtime does after SIGQUIT
}

// puppets runs a supervisor with one puppet after the other, and with ticks of the test's own.
func puppets(t *testing.T, patience int, endsAt ...syscall.Signal) (s *Supervisor, w *watched, played chan *puppet, tick func(n int)) {
	played = make(chan *puppet, 10)
	ticks := make(chan time.Time)
	number := 1000
	s = &Supervisor{Programs: []Program{{Name: "half", Patience: patience}}, ticks: ticks, launch: func(Program, func(string)) (instance, error) {
		number++
		p := &puppet{number: number, endsAt: append(endsAt, syscall.SIGTERM), end: make(chan struct{}), got: make(chan syscall.Signal, 10)}
		played <- p
		return p, nil
	}}
	w = watch(s)
	run(t, s)
	return s, w, played, func(n int) {
		for range n {
			ticks <- time.Time{}
		}
	}
}

func (p *puppet) expect(t *testing.T, want ...syscall.Signal) {
	t.Helper()
	var got []syscall.Signal
	for len(p.got) > 0 {
		got = append(got, <-p.got)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the signals %v, want %v", got, want)
	}
}

// say sends a message of a puppet once it is known to run.
func (p *puppet) say(t *testing.T, s *Supervisor, w *watched, m message) {
	t.Helper()
	if m.ready {
		w.until(t, "its start", func(all []state.Child) bool { return all[0].PID == p.number })
	}
	s.notified(p.number, m)
}

func TestHungIsRestarted(t *testing.T) {
	for _, c := range []struct {
		name     string
		patience int // of the program; 0 is the usual one
		endsAt   syscall.Signal
		want     []syscall.Signal
	}{
		{"prints its goroutines", 0, syscall.SIGQUIT, []syscall.Signal{syscall.SIGQUIT}},
		{"is deaf", 0, syscall.SIGKILL, []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL}},
		{"is urgent", 20, syscall.SIGQUIT, []syscall.Signal{syscall.SIGQUIT}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, w, played, tick := puppets(t, c.patience, c.endsAt)
			patience := cmp.Or(c.patience, patience)
			p := <-played
			tick(10 * patience)
			p.expect(t) // because a start may take long
			p.say(t, s, w, message{ready: true})
			tick(patience - 2)
			p.say(t, s, w, message{alive: true})
			tick(patience - 2)
			p.expect(t)
			tick(4)
			p.say(t, s, w, message{alive: true}) // too late
			if c.endsAt == syscall.SIGKILL {
				tick(lastWords - 2)
			}
			w.line(t, fmt.Sprintf("half (pid 1001) has given no sign of life for %d s: ending it", patience))
			w.line(t, fmt.Sprintf("|half gave no sign of life for %d s and was killed; restarting at once", patience))
			p.expect(t, c.want...)
			again := <-played
			again.say(t, s, w, message{ready: true})
			all := w.until(t, "the restart", allReady)
			if all[0].Restarts != 1 || !strings.HasPrefix(all[0].LastExit, "gave no sign of life") {
				t.Errorf("%d restarts, last exit %q", all[0].Restarts, all[0].LastExit)
			}
			tick(patience - 2)
			again.expect(t)
		})
	}
}

// TestAliveIsLeftAlone: an hour of rare signs of life, none of which is reported as a change.
func TestAliveIsLeftAlone(t *testing.T) {
	s, w, played, tick := puppets(t, 0)
	p := <-played
	p.say(t, s, w, message{ready: true})
	w.until(t, "ready", allReady)
	for range 3600 / (patience - 2) {
		tick(patience - 2)
		p.say(t, s, w, message{alive: true})
	}
	p.expect(t)
	if len(w.changes) > 0 {
		t.Errorf("%d changes were reported", len(w.changes))
	}
}

// TestFrozenIsRestarted stops a real process with a signal that it cannot catch.
func TestFrozenIsRestarted(t *testing.T) {
	ticks := make(chan time.Time)
	s := &Supervisor{Programs: []Program{player("steady"), player("lively")}, StopTimeout: time.Second, ticks: ticks}
	w := watch(s)
	run(t, s)
	before := w.until(t, "ready", allReady)
	if err := syscall.Kill(before[0].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range patience + lastWords {
		w.line(t, "lively|beat") // it was heard just before
		ticks <- time.Time{}
	}
	after := w.until(t, "the restart", func(all []state.Child) bool { return allReady(all) && all[0].Restarts == 1 })
	if after[0].PID == before[0].PID || after[1].PID != before[1].PID {
		t.Errorf("pids before %d, %d and after %d, %d", before[0].PID, before[1].PID, after[0].PID, after[1].PID)
	}
}

// TestGoroutinesArePrinted: a Go program that hangs leaves its stacks in the log.
func TestGoroutinesArePrinted(t *testing.T) {
	ticks := make(chan time.Time)
	s := &Supervisor{Programs: []Program{player("deaf")}, StopTimeout: time.Second, ticks: ticks}
	w := watch(s)
	run(t, s)
	w.until(t, "ready", allReady)
	for range patience {
		ticks <- time.Time{}
	}
	w.line(t, "deaf|SIGQUIT")
	w.line(t, "deaf|goroutine 1 ")
	w.line(t, "|deaf gave no sign of life for 60 s and was killed")
}
