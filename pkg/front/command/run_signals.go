package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front"
)

// interrupts passes the signals that ask this process to end to its current work.
type interrupts struct {
	// ctx ends at the first signal while take is nil.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	received chan os.Signal

	mu   sync.Mutex
	take func(os.Signal) // gets the signals if it is not nil
	last os.Signal       // the signal that ended ctx
}

// listen starts to receive the signals.
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

// give passes all further signals to a function. It returns the signal that came before, if any.
func (i *interrupts) give(to func(os.Signal)) (missed os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.take = to
	return i.last
}

// inputEnded ends ctx unless signals are passed to a function: the program at standard input has gone before its cluster could be used.
func (i *interrupts) inputEnded() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.take == nil {
		i.cancel(errors.New("standard input ended before the cluster could be used"))
	}
}

func (i *interrupts) stop() {
	signal.Stop(i.received)
	close(i.received)
	i.cancel(nil)
}

// explain turns the error of a run that a signal ended into the exit code for that.
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

// stopPatience is how long a command may take to end after a signal asked it to.
const stopPatience = 30 * time.Second

// stopper passes the first signal on to a command's processes, and kills them at the second one, or after stopPatience.
type stopper struct {
	group int

	mu    sync.Mutex
	over  bool
	asked time.Time // when the first signal came, or zero
	timer *time.Timer
}

func (s *stopper) take(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, ok := sig.(syscall.Signal)
	switch {
	case !ok, s.over, !s.asked.IsZero() && time.Since(s.asked) < front.SameSignal: // the same request sent twice
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

// done must be called when the command has ended, because its process group's number may be used again.
func (s *stopper) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
