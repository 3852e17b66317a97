package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front"
)

// interrupts gives the signals that ask this process to end to what it is busy with.
type interrupts struct {
	// ctx ends at the first signal that nobody has taken.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	received chan os.Signal

	mu   sync.Mutex
	take func(os.Signal) // nil: ctx ends
	last os.Signal       // that ended ctx
}

// listen begins to take the signals.
func listen() *interrupts {
	i := &interrupts{received: make(chan os.Signal, 8)}
	i.ctx, i.cancel = context.WithCancelCause(context.Background())
	signal.Notify(i.received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range i.received {
			i.mu.Lock()
			take := i.take
			if take == nil {
				i.last = s
			}
			i.mu.Unlock()
			if take != nil {
				take(s)
				continue
			}
			i.cancel(fmt.Errorf("stopped by %s", front.SignalName(s)))
		}
	}()
	return i
}

// give lets somebody else take the signals from now on. It returns the one that came before, if one did.
func (i *interrupts) give(to func(os.Signal)) (missed os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.take = to
	return i.last
}

func (i *interrupts) stop() {
	signal.Stop(i.received)
	close(i.received)
	i.cancel(nil)
}

// explain makes the error of a run that was asked to end the exit code of one that a signal ended.
func (i *interrupts) explain(err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	s, ok := i.last.(syscall.Signal)
	if !ok {
		return err
	}
	fmt.Fprintf(os.Stderr, "coracle: stopped by %s\n", front.SignalName(s))
	return exitcode.Silent(runSignalBase + int(s))
}

// stopPatience is how long a command may take to end once it was asked to.
const stopPatience = 30 * time.Second

// stopper passes requests to end on to a command's processes. The second one, or too much time, ends them at once.
type stopper struct {
	group int

	mu    sync.Mutex
	over  bool
	asked time.Time // zero as long as nobody has
	timer *time.Timer
}

func (s *stopper) take(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, ok := sig.(syscall.Signal)
	switch {
	case !ok, s.over, !s.asked.IsZero() && time.Since(s.asked) < front.SameSignal: // the same request, as when a terminal goes away
	case s.asked.IsZero():
		s.asked = time.Now()
		_ = syscall.Kill(-s.group, number)
		s.timer = time.AfterFunc(stopPatience, s.late)
	default:
		_ = syscall.Kill(-s.group, syscall.SIGKILL)
	}
}

func (s *stopper) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		_ = syscall.Kill(-s.group, syscall.SIGKILL)
	}
}

// done is called when the command has ended: its number may become another's.
func (s *stopper) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
