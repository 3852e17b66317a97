// Package supervise keeps a few programs running: it starts them, restarts those that end, listens to what they
// tell through a notify socket, collects their output line by line, and stops them in order. It is also the init
// of a container: see Children. What runs inside a program, and in which order, is package lifecycle's
// business.
package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
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

// lastLine is the Reason of programs whose output nothing is known about.
type lastLine struct{ line string }

func (l *lastLine) Line(line string) { l.line = line }
func (l *lastLine) String() string   { return l.line }
