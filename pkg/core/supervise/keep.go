package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/logs"
)

// keep starts a program each time that it ends. It returns an error if the program fails too often, or if it ends because the machine was
// removed from its cluster.
func (s *Supervisor) keep(c *child) error {
	defer s.change(func() { c.State, c.PID = Stopped, 0 })
	delays, failures, everReady := backoff{}, 0, false
	for {
		end := s.runOnce(c)
		if stopped(c.stop) {
			return nil
		}
		if end.how == exited(int(exitcode.Removed)) {
			return exitcode.With(exitcode.Removed, errors.New(cmp.Or(end.why, end.how)))
		}
		everReady = everReady || end.wasReady > 0
		if failures++; everReady || !end.ownFault {
			failures = 0
		}
		if failures == cmp.Or(s.GiveUp, 3) {
			return fmt.Errorf("%s failed %d times and was never ready, giving up: %s", c.Program.Name, failures, cmp.Or(end.why, end.how))
		}
		delay := delays.next(end.wasReady)
		s.change(func() { c.Restarts++ })
		s.Line("", fmt.Sprintf("%s %s; restarting %s", c.Program.Name, end, in(delay)))
		select {
		case <-c.stop:
			return nil
		case <-time.After(delay):
		}
	}
}

// ending is how one instance of a program ended.
type ending struct {
	how      string        // its exit status, or the signal that killed it
	why      string        // its last error, "" if it printed none
	ownFault bool          // it exited by itself rather than being killed
	wasReady time.Duration // how long it had been ready
}

func (e ending) String() string {
	if e.why == "" {
		return e.how
	}
	return e.how + ": " + e.why
}

func (s *Supervisor) runOnce(c *child) ending {
	var last logs.LastError
	s.change(func() {
		c.State, c.PID, c.Started, c.Ready, c.Status = Starting, 0, time.Now(), time.Time{}, ""
		c.silent, c.hung = 0, false
	})
	if c.Prepare != nil {
		if err := c.Prepare(); err != nil {
			return s.noteEnd(c, ending{how: "did not start", why: err.Error(), ownFault: true})
		}
	}
	var inst instance
	var err error
	s.change(func() { // under the lock, so that notified does not drop a message because the PID is not set yet
		inst, err = s.launch(c.Program, func(line string) {
			last.Line(line)
			s.Line(c.Program.Name, line)
		})
		if err == nil {
			c.PID, c.running = inst.pid(), inst
		}
	})
	if err != nil {
		return s.noteEnd(c, ending{how: "did not start", why: err.Error(), ownFault: true})
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-over:
			return
		case <-c.stop:
		}
		s.change(func() { c.State = Stopping })
		inst.signal(syscall.SIGTERM)
		select {
		case <-over:
		case <-c.kill:
			inst.signal(syscall.SIGKILL)
		}
	}()
	var end ending
	end.how, end.ownFault = inst.wait()
	switch {
	case stopped(c.stop):
		end.how = "was stopped"
	case s.isHung(c):
		end = ending{how: fmt.Sprintf("gave no sign of life for %d s and was killed", c.patience())}
	case end.ownFault:
		end.why = last.String()
	}
	return s.noteEnd(c, end)
}

func (s *Supervisor) noteEnd(c *child, end ending) ending {
	s.change(func() {
		if !c.Ready.IsZero() {
			end.wasReady = time.Since(c.Ready)
		}
		c.running = nil
		c.State, c.PID, c.LastExit, c.LastExitAt = Backoff, 0, end.String(), time.Now()
		if stopped(c.stop) {
			c.State = Stopped
		}
	})
	return end
}

func in(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return "in " + d.String()
}

// The delays between restarts. The first restart is at once, then the delay doubles; after the program was ready for a while
// it begins again.
const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 15 * time.Second
	healthy    = 10 * time.Second
)

// backoff calculates the delay before the next restart.
type backoff struct{ last time.Duration }

// next returns the delay before the next start, given how long the last instance had been ready.
func (b *backoff) next(wasReady time.Duration) (delay time.Duration) {
	if wasReady >= healthy {
		b.last = 0
	}
	delay = b.last
	b.last = min(max(2*b.last, firstDelay), lastDelay)
	return delay
}

// stopRest stops programs at the same time; the last one is stopping already.
func stopRest(left []*child) {
	for _, c := range left[:len(left)-1] {
		close(c.stop)
	}
	timeout := time.AfterFunc(3*time.Second, func() {
		for _, c := range left {
			close(c.kill)
		}
	})
	defer timeout.Stop()
	for _, c := range left {
		<-c.ended
	}
}
