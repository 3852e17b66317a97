package state

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Recorder keeps a process' file up to date. Its methods may be called from several goroutines.
type Recorder struct {
	dirs paths.Dirs

	mu sync.Mutex
	p  Process
}

// NewRecorder begins the file of the named process, which is the calling one.
func NewRecorder(dirs paths.Dirs, name, version string) *Recorder {
	ticks, err := StartTicks(os.Getpid())
	if err != nil {
		logrus.WithError(err).Warn("finding out when this process was started")
	}
	r := &Recorder{dirs: dirs, p: Process{
		Name: name, PID: os.Getpid(), Version: version, Started: time.Now(), StartTicks: ticks,
	}}
	r.Update(func(*Process) {})
	return r
}

// Update changes what is told and writes it. A failing write is logged: telling must never stop the work.
func (r *Recorder) Update(change func(*Process)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.p)
	if err := Write(r.dirs, r.p); err != nil {
		logrus.WithError(err).Warn("writing the state file")
	}
}

// Snapshot returns what was told last.
func (r *Recorder) Snapshot() Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.p
	p.Phases = slices.Clone(p.Phases) // the only part that is changed in place
	return p
}

// Phase notes the begin of a one-shot step; the returned function notes its end.
func (r *Recorder) Phase(name string) (end func()) {
	var i int
	r.Update(func(p *Process) {
		i = len(p.Phases)
		p.Phases = append(p.Phases, Phase{Name: name, Began: time.Now()})
	})
	return func() { r.Update(func(p *Process) { p.Phases[i].Ended, p.Phases[i].Waiting = time.Now(), "" }) }
}

// Waiting notes what the step that was begun last waits for.
func (r *Recorder) Waiting(what string) {
	r.Update(func(p *Process) {
		if n := len(p.Phases); n > 0 {
			p.Phases[n-1].Waiting = what
		}
	})
}

// Units is a lifecycle.Group's OnChange.
func (r *Recorder) Units(units []lifecycle.Status) {
	r.Update(func(p *Process) { p.Units = units })
}

// Detail records a component's own report.
func (r *Recorder) Detail(component string, report any) {
	data, err := json.Marshal(report)
	if err != nil {
		logrus.WithError(err).WithField("component", component).Warn("encoding a report")
		return
	}
	r.Update(func(p *Process) {
		if p.Details == nil {
			p.Details = map[string]json.RawMessage{}
		}
		p.Details[component] = data
	})
}
