// Package supervise keeps a few programs running: it starts them, restarts those that end, receives their messages on a
// notify socket, collects their output line by line, and stops them in order. It is also the init of a container: see
// Children. Package lifecycle orders what runs inside a program.
package supervise

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Program is what the supervisor keeps running.
type Program struct {
	Name string
	// Path is the executable, Args are its arguments, Env is its environment, to which NOTIFY_SOCKET is added.
	Path string
	Args []string
	Env  []string
	// Prepare is called before each start of the program; nil does nothing.
	Prepare func() error
	// Socket is called before each start and returns a socket that the instance gets, or nil, see package heldsocket. The socket is closed after the start.
	Socket func() *os.File
	// OwnMounts gives it a mount namespace of its own, where that is possible.
	OwnMounts bool
	// Patience is after how many seconds without a sign of life it is restarted. Zero is 60.
	Patience int
}

func (p Program) patience() int { return cmp.Or(p.Patience, patience) }

// The values of state.Child.State.
const (
	Starting = "starting"
	Ready    = "ready"
	Backoff  = "backoff"
	Stopping = "stopping"
	Stopped  = "stopped"
)

// Supervisor runs programs. Fields are set before Run; Line and OnChange are required.
type Supervisor struct {
	// Programs are started together and stopped one after another, the last one first.
	Programs []Program
	// Children holds the processes of the programs.
	Children Children
	// Owner holds them instead if it is not nil.
	Owner *Children
	// Socket is the path at which the notify socket is created.
	Socket string
	// Line takes each line that a program prints, without its newline, and messages of the supervisor, for which program is
	// empty. Calls may overlap.
	Line func(program, line string)
	// OnChange receives the states of all programs after each event, in the order of Programs. It must not block.
	OnChange func([]state.Child)
	// StopTimeout bounds the stop of all programs together, after which they are killed. Zero is 30 seconds.
	StopTimeout time.Duration
	// Hurry makes the current or the next stop quick when it is closed: all programs are stopped at once, and killed after
	// 3 seconds.
	Hurry chan struct{}
	// GiveUp is how many times in a row a program that was never ready may fail by itself before Run returns
	// its error. Zero is 3. A program that is killed did not fail, and one that was ready once is always restarted.
	GiveUp int

	launch func(Program, func(line string)) (instance, error) // replaced by tests
	ticks  <-chan time.Time                                   // replaced by tests; nil is one each second

	mu        sync.Mutex
	notifying sync.Mutex // held during OnChange
	running   []*child
}

// child is a program and its state, which Supervisor.mu guards.
type child struct {
	Program
	state.Child
	stop chan struct{} // closed: end the running instance and do not start another
	kill chan struct{} // closed: do not wait for an orderly end

	running instance // nil while there is none
	silent  int      // ticks since its last sign of life
	hung    bool     // it was silent for too long and is being ended

	ended chan struct{} // closed when the program has stopped for good
}

// Run starts all programs and keeps them running until ctx is done, then stops them and returns nil. It returns an
// error if the socket cannot be made or if a program turns out not to work. After nil it can be called again.
func (s *Supervisor) Run(ctx context.Context) error {
	if s.launch == nil {
		launcher, err := newLauncher(s.owner(), s.Socket, s.notified)
		if err != nil {
			return err
		}
		s.launch = launcher.launch
		defer func() {
			launcher.close()
			s.launch = nil
		}()
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	failed := make(chan error, len(s.Programs))

	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
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
	s.watch(ctx)
	s.stopAll()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// notified takes a message that the process pid sent to the notify socket. A mere sign of life changes no state.
func (s *Supervisor) notified(pid int, m message) {
	if m == (message{alive: true}) {
		s.lives(pid)
		return
	}
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

// change changes the states of children and calls OnChange.
func (s *Supervisor) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()

	s.notifying.Lock() // so that the last call has the last state
	defer s.notifying.Unlock()
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

// stopAll stops the programs in reverse order. Each may use the remaining time except a share for each program that is
// stopped after it, so that a node process that hangs does not keep etcd from an orderly stop.
func (s *Supervisor) stopAll() {
	total, share := cmp.Or(s.StopTimeout, 30*time.Second), 8*time.Second
	deadline := time.Now().Add(total)
	for i, c := range slices.Backward(s.running) {
		close(c.stop)
		timeout := time.NewTimer(time.Until(deadline) - time.Duration(i)*min(share, total/4))
		select {
		case <-c.ended:
		case <-timeout.C:
			s.Line("", fmt.Sprintf("%s does not stop in time: killing it", c.Program.Name))
			close(c.kill)
			<-c.ended
		case <-s.Hurry:
			timeout.Stop()
			stopRest(s.running[:i+1])
			return
		}
		timeout.Stop()
	}
}
