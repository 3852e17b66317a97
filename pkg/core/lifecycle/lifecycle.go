// Package lifecycle starts the components of a process in the order of their dependencies and stops them in reverse.
//
// A Component has one method. Dependencies are the values that Add returns, so a cycle or a misspelt
// name does not compile. Any failure ends the whole group with one error; package supervise restarts processes.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Component is a part of a process. It is its own configuration: a struct literal with a Run method.
type Component interface {
	// Run works until ctx is done, then returns. It calls ready once other components can use it.
	// To return before ctx is done is a failure, even with a nil error.
	Run(ctx context.Context, ready func()) error
}

// State is the state of a unit.
type State string

// The states of a unit, in the order in which it goes through them.
const (
	Waiting  State = "waiting"
	Starting State = "starting"
	Standby  State = "standby" // see StandBy
	Ready    State = "ready"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Failed   State = "failed"
)

// Status describes a unit. Times are zero until the event has happened.
type Status struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Needs   []string  `json:"needs,omitempty"`
	Added   time.Time `json:"added"`
	Started time.Time `json:"started,omitzero"`
	Standby time.Time `json:"standby,omitzero"` // when it began to stand by, if it ever did
	Ready   time.Time `json:"ready,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Waiting names what the unit waits for, with the last probe's error.
	Waiting string `json:"waiting,omitempty"`
	Error   string `json:"error,omitempty"`
	// Restarted is when the unit last started again, because one that it needs was withdrawn in between. The other times are of the
	// first start.
	Restarted time.Time `json:"restarted,omitzero"`
}

// Began returns when the unit last started.
func (s Status) Began() time.Time {
	if s.Restarted.IsZero() {
		return s.Started
	}
	return s.Restarted
}

// Unit is a component of a group, which later components can name as a dependency.
type Unit struct {
	status    Status
	component Component
	probe     Probe // nil if it has none
	needs     []*Unit

	ready   chan struct{} // closed when it is ready for the first time
	standby chan struct{} // closed when it stands by for the first time, with stoodBy
	stoodBy sync.Once
	ended   chan struct{}

	// Guarded by the group's mu.
	serving chan struct{}           // closed while it is ready; another one after each withdrawal
	users   map[*Unit]bool          // those that need this one and run
	freed   chan struct{}           // closed when a user has ended; another one for the next
	stop    context.CancelCauseFunc // ends its run, since it has last begun to use what it needs
}

// Group runs units. The zero value is usable; fields are set before Run.
type Group struct {
	// Log logs one line per event. Nil is logrus' standard logger.
	Log logrus.FieldLogger
	// OnChange is called with the status of all units after each event that changes one, in the order of Add. It must not block for long.
	OnChange func([]Status)
	// OnSettings is called with the settings of a unit that reports them with RunsWith. Units call it at the same time.
	OnSettings func(unit string, settings any)
	// StopTimeout is how long one unit may take to stop before it is abandoned. Zero is 10 seconds.
	StopTimeout time.Duration
	// ReportEvery is the interval at which the group logs which units are not ready. Zero is 10 seconds.
	ReportEvery time.Duration

	mu        sync.Mutex
	notifying sync.Mutex
	units     []*Unit
}

// Add adds a component that starts when all its needs are ready and stops before any of them does.
// All calls come before Run.
func (g *Group) Add(name string, c Component, needs ...*Unit) *Unit {
	u := &Unit{
		status:    Status{Name: name, State: Waiting, Added: time.Now()},
		component: c,
		needs:     needs,
		ready:     make(chan struct{}),
		standby:   make(chan struct{}),
		ended:     make(chan struct{}),
		serving:   make(chan struct{}),
		users:     map[*Unit]bool{},
		freed:     make(chan struct{}),
	}
	for _, n := range needs {
		u.status.Needs = append(u.status.Needs, n.status.Name)
	}
	g.units = append(g.units, u)
	return u
}

// Run starts all units and returns when all have ended: nil after ctx was cancelled and every unit stopped in
// order, else the first failure, naming its unit.
func (g *Group) Run(ctx context.Context) error {
	if g.Log == nil {
		g.Log = logrus.StandardLogger()
	}
	if g.StopTimeout == 0 {
		g.StopTimeout = 10 * time.Second
	}
	if g.ReportEvery == 0 {
		g.ReportEvery = 10 * time.Second
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	var failure error // the first one
	var failing sync.Once
	var running sync.WaitGroup
	for _, u := range g.units {
		running.Go(func() {
			defer close(u.ended)
			if err := g.run(ctx, u); err != nil {
				failing.Do(func() { failure = fmt.Errorf("%s: %w", u.status.Name, err) })
				stop(failed{failure})
				g.release(u) // not earlier: who waits for u's end must see that the group ends
			}
		})
	}
	g.notify()
	stopReports := g.report(ctx)
	running.Wait()
	stopReports()
	return failure
}

// Ready returns a channel that is closed once every unit has been ready or stands by.
func (g *Group) Ready() <-chan struct{} {
	all := make(chan struct{})
	go func() {
		for _, u := range g.units {
			select {
			case <-u.ready:
			case <-u.standby:
			case <-u.ended:
				return
			}
		}
		close(all)
	}()
	return all
}

// Ready returns a channel that is closed when the unit is ready for the first time, for a component that can begin before it is.
func (u *Unit) Ready() <-chan struct{} { return u.ready }

// Status returns every unit's status, in the order of Add.
func (g *Group) Status() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Status, len(g.units))
	for i, u := range g.units {
		out[i] = u.status
	}
	return out
}

// run starts and stops one unit, again each time that one it needs is withdrawn. It returns nil if the unit was stopped.
func (g *Group) run(ctx context.Context, u *Unit) error {
	for {
		needed, err := g.awaitNeeds(ctx, u)
		if err != nil {
			g.set(u, func(s *Status) { s.State, s.Ended = Stopped, time.Now() })
			return nil // the group stops before the unit has started
		}
		if err := g.runWhile(ctx, needed, u); err != nil {
			return err
		}
		g.release(u)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// runWhile starts a unit, and stops it when needed is done. It returns nil if the unit was stopped.
func (g *Group) runWhile(ctx, needed context.Context, u *Unit) error {
	g.set(u, func(s *Status) {
		s.State, s.Waiting = Starting, ""
		if s.Started.IsZero() {
			s.Started = time.Now()
		} else {
			s.Restarted = time.Now()
		}
	})
	log := g.Log.WithField("component", u.status.Name)
	log.Debug("starting")

	// The unit's own context outlives ctx until everything that needs the unit has stopped.
	own, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	own = context.WithValue(own, tellKey{}, told{
		waiting:  func(what string) { g.set(u, func(s *Status) { s.Waiting = what }) },
		standby:  func(why string) { g.standBy(u, why, false) },
		withdraw: func(why error) error { return g.withdraw(ctx, u, why) },
		probed:   func(p Probe) { g.setProbe(u, p) },
		settings: func(s any) {
			if g.OnSettings != nil {
				g.OnSettings(u.status.Name, s)
			}
		},
	})
	result := make(chan error, 1)
	go func() { result <- runSafely(own, u.component, g.readyFunc(own, u, log)) }()

	select {
	case err := <-result:
		if err == nil {
			err = errors.New("ended unexpectedly")
		}
		g.set(u, func(s *Status) { s.State, s.Error, s.Ended = Failed, err.Error(), time.Now() })
		return err
	case <-needed.Done():
	}
	if ctx.Err() != nil {
		g.awaitUsers(u)
		g.stop(u, log, g.stopTimeout(u), func() { stop(context.Cause(ctx)) }, result)
		g.set(u, func(s *Status) { s.State, s.Ended = Stopped, time.Now() })
		return nil
	}
	g.stopUsers(u, context.Cause(needed))
	if g.stop(u, log, withdrawTimeout, func() { stop(nil) }, result) {
		g.standBy(u, "", true)
		return nil
	}
	err := fmt.Errorf("it has not stopped within %s, but must: %w", withdrawTimeout, context.Cause(needed))
	g.set(u, func(s *Status) { s.State, s.Error, s.Ended = Failed, err.Error(), time.Now() })
	return err
}

// set changes a unit's status, and calls OnChange if that makes a difference.
func (g *Group) set(u *Unit, change func(*Status)) {
	g.mu.Lock()
	before := u.status
	change(&u.status)
	same := reflect.DeepEqual(before, u.status) // as when a unit still waits for what it has waited for
	g.mu.Unlock()
	if !same {
		g.notify()
	}
}

func (g *Group) notify() {
	if g.OnChange == nil {
		return
	}
	g.notifying.Lock() // so that the last call has the last state
	defer g.notifying.Unlock()
	g.OnChange(g.Status())
}

// runSafely turns a panic in the component's own goroutine into an error.
func runSafely(ctx context.Context, c Component, ready func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.Run(ctx, ready)
}
