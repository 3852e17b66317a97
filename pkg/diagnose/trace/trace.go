// Package trace draws a start of coracle as a waterfall: which step waited for what, began when, and took how long.
// All times come from the state files, so a start can be looked at as long as the machine has not been rebooted.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Trace is one start. Its JSON form is stable.
type Trace struct {
	Version string    `json:"version"`
	Began   time.Time `json:"began"` // when the front was executed
	// Parts are the start itself and then the last start of each child process that was restarted since.
	Parts []Part `json:"parts"`
}

// Part is one waterfall: rows against one axis of time. All its numbers are seconds after Zero.
type Part struct {
	Title      string      `json:"title"`
	Zero       time.Time   `json:"zero"`
	Length     float64     `json:"length"`
	Rows       []Row       `json:"rows"`
	Milestones []Milestone `json:"milestones,omitempty"`
}

// Kind is what a row stands for.
type Kind string

// The kinds of rows. Phases and units follow the process that they belong to.
const (
	Process Kind = "process"
	Phase   Kind = "phase"
	Unit    Kind = "unit"
)

// Row is one bar. Between Queued and Began it waited for Needs; between Began and Ended it worked.
type Row struct {
	Kind   Kind     `json:"kind"`
	Name   string   `json:"name"`
	Queued float64  `json:"queued"`
	Began  float64  `json:"began"`
	Ended  float64  `json:"ended"`
	Needs  []string `json:"needs,omitempty"`
	// Open says that it has not ended: Ended is how far it has come.
	Open bool `json:"open,omitempty"`
	// Standby says that it was or is a spare, which others do not wait for: it has no bar.
	Standby bool `json:"standby,omitempty"`
	// Failed says why it ended otherwise than ready.
	Failed string `json:"failed,omitempty"`
}

// Took is how long the row's own work took, in seconds.
func (r Row) Took() float64 { return r.Ended - r.Began }

// Milestone is a moment that people wait for.
type Milestone struct {
	Name string  `json:"name"`
	At   float64 `json:"at"`
}

// milestones are the units whose being ready means something to people outside.
var milestones = []struct{ unit, name string }{
	{"kube-apiserver", "API ready"},
	{"node-ready", "node Ready"},
	{"dns", "DNS answers"},
}

// Read makes the trace of the start that the state files of an installation tell of. now is where bars of what is
// not ready yet end.
func Read(dirs paths.Dirs, now time.Time) (Trace, error) {
	front, ok, err := state.Read(dirs, state.Front)
	if err != nil {
		return Trace{}, err
	}
	if !ok {
		return Trace{}, errors.New("coracle has not been started since this machine booted: there is nothing to show")
	}
	var children []state.Process
	for _, child := range front.Children {
		p, ok, err := state.Read(dirs, child.Name)
		if err != nil {
			return Trace{}, err
		}
		if ok {
			children = append(children, p)
		}
	}
	return Make(front, children, now), nil
}

// Make is Read for what has been read.
func Make(front state.Process, children []state.Process, now time.Time) Trace {
	t := Trace{Version: front.Version, Began: front.Started}
	first := newPart("Start of coracle "+front.Version, front.Started, now)
	first.process("coracle", front.Started, front.Started, front.Ready, "")
	first.phases(front.Phases)
	var later []Part
	for _, p := range children {
		child := childOf(front, p.Name)
		part := first
		if child.Restarts > 0 {
			times := "once"
			if child.Restarts > 1 {
				times = fmt.Sprintf("%d times", child.Restarts)
			}
			part = newPart(fmt.Sprintf("Last start of %s, which was restarted %s", p.Name, times), child.Started, now)
		}
		part.process(p.Name, cmp.Or(child.Started, p.Started), p.Started, readyOf(child, p), child.LastExit)
		part.phases(p.Phases)
		part.units(p.Units)
		if part != first {
			later = append(later, part.finish())
		}
	}
	t.Parts = append([]Part{first.finish()}, later...)
	return t
}

func childOf(front state.Process, name string) state.Child {
	for _, c := range front.Children {
		if c.Name == name {
			return c
		}
	}
	return state.Child{Name: name}
}

func readyOf(child state.Child, p state.Process) time.Time { return cmp.Or(child.Ready, p.Ready) }

// part is a Part that is being put together.
type part struct {
	Part
	now time.Time
}

func newPart(title string, zero, now time.Time) *part {
	return &part{Part: Part{Title: title, Zero: zero}, now: now}
}

// after is the number of seconds between the part's zero and t, without a false precision.
func (p *part) after(t time.Time) float64 {
	return max(0, t.Sub(p.Zero).Round(100*time.Microsecond).Seconds())
}

// add enters a bar; a zero began or ended is something that has not happened.
func (p *part) add(r Row, queued, began, ended time.Time) {
	if ended.IsZero() {
		r.Open, ended = true, p.now
	}
	if began.IsZero() {
		began = ended
	}
	r.Queued, r.Began, r.Ended = p.after(queued), p.after(began), p.after(ended)
	p.Rows = append(p.Rows, r)
}

func (p *part) process(name string, executed, main, ready time.Time, exit string) {
	r := Row{Kind: Process, Name: name}
	if ready.IsZero() {
		r.Failed = exit
	}
	p.add(r, executed, main, ready)
}

func (p *part) phases(all []state.Phase) {
	for _, phase := range all {
		p.add(Row{Kind: Phase, Name: phase.Name}, phase.Began, phase.Began, phase.Ended)
	}
}

func (p *part) units(all []lifecycle.Status) {
	for _, u := range all {
		if !u.Standby.IsZero() { // what it did later, if anything, is not part of the start
			p.add(Row{Kind: Unit, Name: u.Name, Needs: u.Needs, Standby: true}, u.Added, u.Standby, u.Standby)
			continue
		}
		ended := u.Ready
		if ended.IsZero() {
			ended = u.Ended // it failed or was stopped first
		}
		p.add(Row{Kind: Unit, Name: u.Name, Needs: u.Needs, Failed: u.Error}, u.Added, u.Started, ended)
		for _, m := range milestones {
			if m.unit == u.Name && !u.Ready.IsZero() {
				p.Milestones = append(p.Milestones, Milestone{Name: m.name, At: p.after(u.Ready)})
			}
		}
	}
}

// finish sets the length, until the last bar ends, and puts the milestones in order.
func (p *part) finish() Part {
	for _, r := range p.Rows {
		p.Length = max(p.Length, r.Ended)
	}
	if first := p.Rows[0]; first.Kind == Process && !first.Open && first.Name == "coracle" {
		p.Milestones = append(p.Milestones, Milestone{Name: "all ready", At: first.Ended})
	}
	slices.SortStableFunc(p.Milestones, func(a, b Milestone) int { return cmp.Compare(a.At, b.At) })
	return p.Part
}
