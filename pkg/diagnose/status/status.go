// Package status reports the state of coracle on this machine: from its state files and /proc, which work even when coracle
// hangs or is dead, and the state of the node from the API, if that answers in time.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// Health sums up a report in one word.
type Health string

// The healths. Starting and Degraded both mean that something is not ready; Degraded was ready before.
const (
	Ready    Health = "ready"
	Starting Health = "starting"
	Degraded Health = "degraded"
	Stopped  Health = "stopped"
)

// Report is the state of coracle. Its JSON form is stable.
type Report struct {
	Health  Health `json:"health"`
	Version string `json:"version,omitempty"`
	// Since is the time at which coracle became ready, or at which it started if it is not ready.
	Since time.Time `json:"since,omitzero"`
	// Reasons describe what is missing for Ready.
	Reasons      []string                   `json:"reasons,omitempty"`
	Processes    []Process                  `json:"processes,omitempty"`
	Node         *Node                      `json:"node,omitempty"`
	LastFailure  *Failure                   `json:"lastFailure,omitempty"`
	Certificates []pki.Expiry               `json:"certificates,omitempty"`
	Data         Data                       `json:"data"`
	Upgrade      *upgrade.State             `json:"upgrade,omitempty"`   // the present or the last one
	Backup       *backup.Attempt            `json:"backup,omitempty"`    // the last attempt to make one
	Addons       []Addon                    `json:"batteries,omitempty"` // the key of the first release
	Details      map[string]json.RawMessage `json:"details,omitempty"`   // components' own reports
}

// Addon is an add-on.
type Addon struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
}

// Process is one process of coracle. Memory, CPU and uptime are zero if it does not run.
type Process struct {
	Name       string             `json:"name"`
	PID        int                `json:"pid,omitempty"`
	State      string             `json:"state"` // starting, ready, degraded, backoff, stopped
	Started    time.Time          `json:"started,omitzero"`
	Ready      time.Time          `json:"ready,omitzero"`
	Memory     int64              `json:"memoryBytes,omitempty"` // private memory (RssAnon)
	CPU        float64            `json:"cpuSeconds,omitempty"`
	User       int                `json:"user"`             // its user id, 0 for root
	AsRoot     string             `json:"asRoot,omitempty"` // why it runs as root although it has a user of its own
	Restarts   int                `json:"restarts"`
	Status     string             `json:"status,omitempty"` // what it is doing
	Components []lifecycle.Status `json:"components,omitempty"`
}

// Failure is the last unexpected end of a child process.
type Failure struct {
	Process string    `json:"process"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time,omitzero"`
}

// Data is the data directory. Size is zero if it took too long to measure.
type Data struct {
	Path string `json:"path"`
	Size int64  `json:"sizeBytes,omitempty"`
}

// Sources are what a report is made of besides the state files.
type Sources struct {
	Dirs paths.Dirs
	// Config is coracle's configuration; it is unknown if it has no role.
	Config config.Config
	// Node reads this machine's node from the API; nil reads nothing.
	Node func(context.Context) (*Node, error)
	// Services returns a sentence about each Service that does not answer; nil looks at none.
	Services func(context.Context) []string
	// Disk returns a sentence about what the disk of the data directory lacks; nil looks at nothing.
	Disk func() []string
	// usage reads /proc; replaced in tests.
	usage func(pid int) (usage, error)
	alive func(state.Process) bool
}

// Time limits. Where nothing else is missing, the API has as long to answer as it has for the kubelet, whose renewal of the node's lease
// fails after 10 s: a slow machine that is busy is not yet a degraded one.
const (
	nodeTimeout  = 10 * time.Second
	shortTimeout = 2 * time.Second // if something is missing anyway, and for figures that can be left out
	sizeTimeout  = time.Second
)

// Collect makes a report. It fails only if the state files cannot be read.
func Collect(ctx context.Context, from Sources) (Report, error) {
	if from.usage == nil {
		from.usage, from.alive = readUsage, state.Process.Alive
	}
	recorded := map[string]state.Process{}
	for _, name := range []string{state.Front, state.ControlPlane, state.Node} {
		p, ok, err := state.Read(from.Dirs, name)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return Report{}, fmt.Errorf("only root can read the state of coracle: use sudo (%w)", err)
		case err != nil:
			return Report{}, err
		case ok:
			recorded[name] = p
		}
	}
	size := make(chan int64, 1)
	go func() { size <- dirSize(from.Dirs.Data, time.Now().Add(sizeTimeout)) }()

	r := Report{Data: Data{Path: from.Dirs.Data}, Certificates: pki.Expiries(from.Dirs), Backup: backup.LastAttempt(from.Dirs.LastSnapshot())}
	if last, ok, err := upgrade.Read(from.Dirs.Data); ok && err == nil {
		r.Upgrade = &last
	}
	r.addProcesses(recorded, from)
	if r.Health != Stopped && from.Node != nil {
		r.addNode(ctx, from.Node)
	}
	if r.Node != nil && from.Services != nil { // without the API it is no news
		r.add(from.Services(ctx)...)
	}
	if from.Disk != nil { // also while it does not run: that may be why
		r.add(from.Disk()...)
	}
	if r.Health != Stopped && from.Config.Role != "" {
		for _, name := range config.Addons() {
			r.Addons = append(r.Addons, Addon{name, !from.Config.Disabled(name)})
		}
	}
	r.Data.Size = <-size
	return r, nil
}

// addProcesses adds the processes by their state files, and sets the health.
func (r *Report) addProcesses(recorded map[string]state.Process, from Sources) {
	front, ok := recorded[state.Front]
	if !ok || !from.alive(front) {
		r.Health = Stopped
		r.Version = front.Version
		r.LastFailure = cmp.Or(lastFailure(front.Children), failedStart(front))
		for _, name := range []string{state.ControlPlane, state.Node} {
			if p, ok := recorded[name]; ok && from.alive(p) {
				r.Health = Degraded
				r.Reasons = append(r.Reasons, fmt.Sprintf("%s (pid %d) runs without the front, which supervises it", name, p.PID))
			}
		}
		return
	}
	r.Version, r.Since = front.Version, front.Started
	r.Processes = append(r.Processes, from.process(front, state.Child{
		PID: front.PID, State: "ready", Started: front.Started, Ready: front.Ready,
	}))
	for _, child := range front.Children {
		p := recorded[child.Name]
		if p.PID != child.PID {
			p = state.Process{} // of an earlier instance
		}
		r.Processes = append(r.Processes, from.process(p, child))
		r.Reasons = append(r.Reasons, missing(p, child)...)
		for component, report := range p.Details {
			if r.Details == nil {
				r.Details = map[string]json.RawMessage{}
			}
			r.Details[component] = report
		}
	}
	r.LastFailure = lastFailure(front.Children)
	switch {
	case len(front.Children) == 0:
		r.Health, r.Reasons = Starting, []string{starting(front)}
	case len(r.Reasons) == 0:
		r.Health = Ready
	case front.Ready.IsZero():
		r.Health = Starting
	default:
		r.Health = Degraded
	}
	if r.Health == Ready {
		// the last of the present child processes became ready then
		r.Since = slices.MaxFunc(front.Children, func(a, b state.Child) int { return a.Ready.Compare(b.Ready) }).Ready
	} else {
		r.Processes[0].State = string(r.Health)
	}
}

// process combines the state file of a process, the front's state of it, and the kernel's.
func (s Sources) process(p state.Process, child state.Child) Process {
	out := Process{
		Name: cmp.Or(child.Name, p.Name), PID: child.PID, State: child.State, Started: child.Started, Ready: child.Ready,
		Restarts: child.Restarts, Status: child.Status, Components: p.Units,
	}
	if child.Name == state.ControlPlane {
		out.AsRoot = s.Config.ControlPlane.AsRoot
	}
	if child.PID == 0 {
		return out
	}
	if u, err := s.usage(child.PID); err == nil {
		out.Memory, out.CPU, out.User = u.memory, u.cpu, u.user
	}
	return out
}

// missing describes what prevents a child process from being ready.
func missing(p state.Process, child state.Child) []string {
	switch child.State {
	case "ready":
		var out []string
		for _, u := range p.Units {
			if u.State == lifecycle.Failed || u.State == lifecycle.Stopped {
				out = append(out, strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", u.Name, u.State, u.Error), ": "))
			}
		}
		return out
	case "starting":
		return awaited(p, child.Name)
	case "backoff":
		return []string{child.Name + " " + cmp.Or(child.LastExit, "ended") + "; it will be restarted"}
	}
	return []string{child.Name + " is " + cmp.Or(child.State, "unknown")}
}

// awaited returns a line for each component that a starting child process waits for. Components that only wait for other
// components are left out.
func awaited(p state.Process, child string) (out []string) {
	for _, u := range p.Units {
		if u.State != lifecycle.Starting {
			continue
		}
		line := u.Name + " is starting"
		if u.Waiting != "" {
			line = u.Name + " waits for " + u.Waiting
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		out = []string{child + " is starting"}
	}
	return out
}

// starting describes what the front does before it has child processes.
func starting(front state.Process) string {
	for _, phase := range slices.Backward(front.Phases) {
		if phase.Ended.IsZero() && phase.Waiting != "" {
			return "coracle is waiting: " + phase.Waiting
		}
		if phase.Ended.IsZero() {
			return "coracle is busy with: " + phase.Name
		}
	}
	return "coracle is starting"
}

func lastFailure(children []state.Child) *Failure {
	var last *Failure
	for _, c := range children {
		if c.LastExit != "" && c.LastExit != "was stopped" && (last == nil || c.LastExitAt.After(last.Time)) {
			last = &Failure{Process: c.Name, Reason: c.LastExit, Time: c.LastExitAt}
		}
	}
	return last
}

// failedStart returns why the front ended before it had child processes, nil if it did not.
func failedStart(front state.Process) *Failure {
	if n := len(front.Phases); n > 0 && front.Phases[n-1].Ended.IsZero() && front.Phases[n-1].Waiting != "" {
		return &Failure{Process: "coracle", Reason: "could not " + front.Phases[n-1].Name + ": " + front.Phases[n-1].Waiting}
	}
	return nil
}
