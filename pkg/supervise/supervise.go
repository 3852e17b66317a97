// Package supervise keeps a few programs running: it starts them, restarts those that end, listens to what they
// tell through a notify socket, collects their output line by line, and stops them in order. It is also the init
// of a container: see Children. What runs inside a program, and in which order, is package lifecycle's
// business.
package supervise

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/state"
)

// Program is what the supervisor keeps running.
type Program struct {
	Name string
	// Path is the executable, Args what follows its name, Env its whole environment; NOTIFY_SOCKET is added.
	Path string
	Args []string
	Env  []string
}

// The states of a child, as state.Child.State tells them.
const (
	Starting = "starting"
	Ready    = "ready"
	Backoff  = "backoff"
	Stopping = "stopping"
	Stopped  = "stopped"
)

// Supervisor runs programs. Fields are set before Run.
type Supervisor struct {
	// Programs are started together and stopped one after another, the last one first.
	Programs []Program
	// Children is told what is started. Nil is a set of its own.
	Children *Children
	// Socket is the path of the notify socket that is made for them.
	Socket string
	// Line takes each line that a program prints, without its end. Calls may overlap.
	Line func(program, line string)
	// OnChange is told how the children are after each event, in the order of Programs. It must not block.
	OnChange func([]state.Child)
	// Reason finds in a program's output what went wrong. Nil takes the last line.
	Reason func() Reason
	// StopTimeout is how long stopping may take in total before programs are killed. Zero is 30 seconds.
	StopTimeout time.Duration
	// GiveUp is how many times in a row a program that was never ready may fail by itself before Run ends with
	// its error. Zero is 3. Being killed does not count, and what was ready once is restarted for ever.
	GiveUp int

	launch func(Program, func(line string)) (instance, error) // replaced by tests

	mu       sync.Mutex
	telling  sync.Mutex
	running  []*child
	hurry    chan struct{}
	hurrying sync.Once
}

// Reason collects lines of output and tells the one that says best why a program ended.
type Reason interface {
	Line(string)
	String() string
}

// child is a program and its life so far. The embedded part is guarded by Supervisor.mu.
type child struct {
	Program
	state.Child
	stop  chan struct{} // closed: end the running instance and do not start another
	kill  chan struct{} // closed: do not wait for an orderly end
	ended chan struct{} // closed when the program has stopped for good
}

// Run starts all programs and keeps them running until ctx is done, then stops them and returns nil. It returns an
// error if the socket cannot be made or if a program turns out not to work.
func (s *Supervisor) Run(ctx context.Context) error {
	s.defaults()
	if s.launch == nil {
		launcher, err := newLauncher(s.Children, s.Socket, s.notified)
		if err != nil {
			return err
		}
		defer launcher.close()
		s.launch = launcher.launch
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	failed := make(chan error, len(s.Programs))

	for _, p := range s.Programs {
		s.running = append(s.running, &child{
			Program: p,
			Child:   state.Child{Name: p.Name, State: Starting},
			stop:    make(chan struct{}),
			kill:    make(chan struct{}),
			ended:   make(chan struct{}),
		})
	}
	for _, c := range s.running {
		go func() {
			defer close(c.ended)
			if err := s.keep(c); err != nil {
				failed <- err
				giveUp()
			}
		}()
	}
	<-ctx.Done()
	s.stopAll()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (s *Supervisor) defaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initHurry()
	if s.StopTimeout == 0 {
		s.StopTimeout = 30 * time.Second
	}
	if s.GiveUp == 0 {
		s.GiveUp = 3
	}
	if s.Reason == nil {
		s.Reason = func() Reason { return new(lastLine) }
	}
	if s.Children == nil {
		s.Children = new(Children)
	}
	if s.OnChange == nil {
		s.OnChange = func([]state.Child) {}
	}
	if s.Line == nil {
		s.Line = func(string, string) {}
	}
}

// keep runs one program again and again. It returns an error if that is pointless.
func (s *Supervisor) keep(c *child) error {
	defer s.change(func() { c.State, c.PID = Stopped, 0 })
	delays, failures, everReady := backoff{}, 0, false
	for {
		end := s.runOnce(c)
		if stopped(c.stop) {
			return nil
		}
		everReady = everReady || end.wasReady > 0
		if failures++; everReady || !end.ownFault {
			failures = 0
		}
		if failures == s.GiveUp {
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
	how      string        // the kernel's view: its exit status, or the signal that killed it
	why      string        // what it said itself, "" for nothing
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
	reason := s.Reason()
	s.change(func() {
		c.State, c.PID, c.Started, c.Ready, c.Status = Starting, 0, time.Now(), time.Time{}, ""
	})
	var inst instance
	var err error
	s.change(func() { // under the lock, so that no message comes from a process that is not known yet
		inst, err = s.launch(c.Program, func(line string) {
			reason.Line(line)
			s.Line(c.Program.Name, line)
		})
		if err == nil {
			c.PID = inst.pid()
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
	case end.ownFault:
		end.why = reason.String()
	}
	return s.noteEnd(c, end)
}

func (s *Supervisor) noteEnd(c *child, end ending) ending {
	s.change(func() {
		if !c.Ready.IsZero() {
			end.wasReady = time.Since(c.Ready)
		}
		c.State, c.PID, c.LastExit, c.LastExitAt = Backoff, 0, end.String(), time.Now()
	})
	return end
}

// notified takes a message that the process pid sent to the notify socket.
func (s *Supervisor) notified(pid int, m message) {
	s.change(func() {
		for _, c := range s.running {
			if c.PID != pid {
				continue
			}
			if m.ready && c.State == Starting {
				c.State, c.Ready = Ready, time.Now()
			}
			if m.hasStatus {
				c.Status = m.status
			}
		}
	})
}

// change changes children and tells OnChange.
func (s *Supervisor) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()

	s.telling.Lock() // so that the last call carries the last state
	defer s.telling.Unlock()
	s.mu.Lock()
	all := make([]state.Child, len(s.running))
	for i, c := range s.running {
		all[i] = c.Child
	}
	s.mu.Unlock()
	s.OnChange(all)
}

func stopped(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func in(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return "in " + d.String()
}

// lastLine is the Reason of programs whose output nothing is known about.
type lastLine struct{ line string }

func (l *lastLine) Line(line string) { l.line = line }
func (l *lastLine) String() string   { return l.line }
