package supervise

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// A program that was ready and then sends no WATCHDOG=1 for patience ticks, or for its own Patience, hangs. It has lastWords more to print its goroutines, and is killed
// then. A tick is a second in which this process ran: while the machine is suspended, or so busy that not even this process runs, time does not count.
const (
	patience  = 60
	lastWords = 5
)

// watch ends programs that hang, until ctx is done.
func (s *Supervisor) watch(ctx context.Context) {
	ticks := s.ticks
	if ticks == nil {
		ticker := time.NewTicker(time.Second) // it drops ticks that nobody takes
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			for _, e := range s.tick() {
				s.Line("", e.line) // before what the end itself prints
				e.running.signal(e.with)
			}
		}
	}
}

// kill is an instance to end, the signal for it, and the line of the log that says so.
type kill struct {
	running instance
	with    syscall.Signal
	line    string
}

// tick counts one tick, and returns what is to be ended.
func (s *Supervisor) tick() (hung []kill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.running {
		if c.State != Ready || c.running == nil {
			continue // a start waits for others as long as it needs, and a stop has a time limit of its own
		}
		c.silent++
		switch {
		case !c.hung && c.silent == c.patience():
			c.hung, c.silent = true, 0
			hung = append(hung, kill{c.running, syscall.SIGQUIT, fmt.Sprintf("%s (pid %d) has given no sign of life for %d s: ending it, "+
				"so that it is started again; its goroutines follow if it can print them", c.Program.Name, c.PID, c.patience())})
		case c.hung && c.silent == lastWords:
			hung = append(hung, kill{c.running, syscall.SIGKILL, fmt.Sprintf("%s (pid %d) does not end by itself: killing it", c.Program.Name, c.PID)})
		}
	}
	return hung
}

// lives notes a sign of life of the process pid; one that is being ended has had its chance.
func (s *Supervisor) lives(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.running {
		if c.PID == pid && !c.hung {
			c.silent = 0
		}
	}
}

func (s *Supervisor) isHung(c *child) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.hung
}
