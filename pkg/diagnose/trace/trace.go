// Package trace draws a start of coracle as a waterfall: when each step began, how long it took, and what it waited for. All
// times come from the state files, so the trace is available until the machine reboots.
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
	// Parts are the start itself, and the last start of each child process that was restarted since.
	Parts []Part `json:"parts"`
}

// Part is one waterfall: rows on one axis of time. All its numbers are seconds after Zero.
type Part struct {
	Title      string      `json:"title"`
	Zero       time.Time   `json:"zero"`
	Length     float64     `json:"length"`
	Rows       []Row       `json:"rows"`
	Milestones []Milestone `json:"milestones,omitempty"`
}

// Kind is the kind of a row.
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
	// Open is true if the work has not ended; then Ended is the present.
	Open bool `json:"open,omitempty"`
	// Standby is true for a unit that was or is on standby. Others do not wait for it, and it has no bar.
	Standby bool `json:"standby,omitempty"`
	// Failed is the reason why it ended without becoming ready.
	Failed string `json:"failed,omitempty"`
}

// Took is the duration of the row's own work, in seconds.
func (r Row) Took() float64 { return r.Ended - r.Began }

// Milestone is a moment that matters to users.
type Milestone struct {
	Name string  `json:"name"`
	At   float64 `json:"at"`
}

// milestones are the units whose readiness is a milestone.
var milestones = []struct{ unit, name string }{
	{"kube-apiserver", "API ready"},
	{"node-ready", "node Ready"},
	{"dns", "DNS answers"},
}

// Read makes the trace of the last start from the state files. Bars of units that are not ready end at now.
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
		process, ok, err := state.Read(dirs, child.Name)
		if err != nil {
			return Trace{}, err
		}
		if ok {
			children = append(children, process)
		}
	}
	return Make(front, children, now), nil
}

// Make is Read for state files that have been read.
func Make(front state.Process, children []state.Process, now time.Time) Trace {
	t := Trace{Version: front.Version, Began: front.Started}
	first := newPart("Start of coracle "+front.Version, front.Started, now)
	first.process("coracle", front.Started, front.Started, front.Ready, "")
	first.phases(front.Phases)
	var later []Part
	for _, process := range children {
		child := front.Child(process.Name)
		part := first
		if child.Restarts > 0 {
			times := "once"
			if child.Restarts > 1 {
				times = fmt.Sprintf("%d times", child.Restarts)
			}
			part = newPart(fmt.Sprintf("Last start of %s, which was restarted %s", process.Name, times), child.Started, now)
		}
		part.process(process.Name, cmp.Or(child.Started, process.Started), process.Started, cmp.Or(child.Ready, process.Ready), child.LastExit)
		part.phases(process.Phases)
		part.units(process.Units)
		if part != first {
			later = append(later, part.finish())
		}
	}
	t.Parts = append([]Part{first.finish()}, later...)
	return t
}

// part is a Part that is being made.
type part struct {
	Part
	now time.Time
}

func newPart(title string, zero, now time.Time) *part {
	return &part{Part: Part{Title: title, Zero: zero}, now: now}
}

// after returns the number of seconds between the part's zero and t, in steps of 0.1 ms.
func (p *part) after(t time.Time) float64 {
	return max(0, t.Sub(p.Zero).Round(100*time.Microsecond).Seconds())
}

// add adds a bar. A zero began or ended means that it has not happened yet.
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
		if !u.Standby.IsZero() { // what it did later is not part of the start
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

// finish sets the length to the end of the last bar, and sorts the milestones.
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
