// Package status says how coracle is doing on this machine: from its state files and /proc, which answer also when
// coracle hangs or is dead, and from the API about the node when that answers in time.
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
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// Health is the one word that sums a report up.
type Health string

// The healths. Starting and Degraded both mean that something is awaited; Degraded was ready before.
const (
	Ready    Health = "ready"
	Starting Health = "starting"
	Degraded Health = "degraded"
	Stopped  Health = "stopped"
)

// Report is all that is known. Its JSON form is stable.
type Report struct {
	Health  Health `json:"health"`
	Version string `json:"version,omitempty"`
	// Since is when coracle became ready, or else when it started.
	Since time.Time `json:"since,omitzero"`
	// Reasons say in words what is missing for Ready.
	Reasons      []string                   `json:"reasons,omitempty"`
	Processes    []Process                  `json:"processes,omitempty"`
	Node         *Node                      `json:"node,omitempty"`
	LastFailure  *Failure                   `json:"lastFailure,omitempty"`
	Certificates []pki.Expiry               `json:"certificates,omitempty"`
	Data         Data                       `json:"data"`
	Upgrade      *upgrade.State             `json:"upgrade,omitempty"`   // the present one, or the last
	Addons       []Addon                    `json:"batteries,omitempty"` // the key that the first release had
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
	Restarts   int                `json:"restarts"`
	Status     string             `json:"status,omitempty"` // what it says it is doing
	Components []lifecycle.Status `json:"components,omitempty"`
}

// Failure is the most recent unexpected end of a child process.
type Failure struct {
	Process string    `json:"process"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time,omitzero"`
}

// Data is the data directory. Size is zero if it took too long to find out.
type Data struct {
	Path string `json:"path"`
	Size int64  `json:"sizeBytes,omitempty"`
}

// Sources are where a report comes from besides the state files.
type Sources struct {
	Dirs paths.Dirs
	// Config is what coracle runs with here; without a role nothing is known of it.
	Config config.Config
	// Node asks the API about this machine's node; nil is nobody.
	Node func(context.Context) (*Node, error)
	// usage reads /proc; replaced in tests.
	usage func(pid int) (usage, error)
	alive func(state.Process) bool
}

// The longest that status waits for the API and for the size of the data directory.
const (
	nodeTimeout = 2 * time.Second
	sizeTimeout = time.Second
)

// Collect puts a report together. It fails only if the state files cannot be read.
func Collect(ctx context.Context, from Sources) (Report, error) {
	if from.usage == nil {
		from.usage, from.alive = readUsage, state.Process.Alive
	}
	told := map[string]state.Process{}
	for _, name := range []string{state.Front, state.ControlPlane, state.Node} {
		p, ok, err := state.Read(from.Dirs, name)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return Report{}, fmt.Errorf("only root may see how coracle is doing: use sudo (%w)", err)
		case err != nil:
			return Report{}, err
		case ok:
			told[name] = p
		}
	}
	size := make(chan int64, 1)
	go func() { size <- dirSize(from.Dirs.Data, time.Now().Add(sizeTimeout)) }()

	r := Report{Data: Data{Path: from.Dirs.Data}, Certificates: pki.Expiries(from.Dirs)}
	if last, ok, err := upgrade.Read(from.Dirs.Data); ok && err == nil {
		r.Upgrade = &last
	}
	r.addProcesses(told, from)
	if r.Health != Stopped && from.Node != nil {
		r.addNode(ctx, from.Node)
	}
	if r.Health != Stopped && from.Config.Role != "" {
		for _, name := range config.Addons() {
			r.Addons = append(r.Addons, Addon{name, !from.Config.Disabled(name)})
		}
	}
	r.Data.Size = <-size
	return r, nil
}

// addProcesses fills in what the processes tell and sums it up.
func (r *Report) addProcesses(told map[string]state.Process, from Sources) {
	front, ok := told[state.Front]
	if !ok || !from.alive(front) {
		r.Health = Stopped
		r.Version = front.Version
		r.LastFailure = lastFailure(front.Children)
		for _, name := range []string{state.ControlPlane, state.Node} {
			if p, ok := told[name]; ok && from.alive(p) {
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
		p := told[child.Name]
		if p.PID != child.PID {
			p = state.Process{} // of an instance before this one
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
		r.Since = latestReady(front)
	} else {
		r.Processes[0].State = string(r.Health)
	}
}

// process joins what a process tells, what the front tells about it, and what the kernel knows.
func (s Sources) process(p state.Process, child state.Child) Process {
	out := Process{
		Name: cmp.Or(child.Name, p.Name), PID: child.PID, State: child.State, Started: child.Started, Ready: child.Ready,
		Restarts: child.Restarts, Status: child.Status, Components: p.Units,
	}
	if child.PID == 0 {
		return out
	}
	if u, err := s.usage(child.PID); err == nil {
		out.Memory, out.CPU = u.memory, u.cpu
	}
	return out
}

// missing returns why a child process is not ready.
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
		return []string{child.Name + " " + cmp.Or(child.LastExit, "ended") + "; it will be started again"}
	}
	return []string{child.Name + " is " + cmp.Or(child.State, "unknown")}
}

// awaited says what a starting process waits for, a line for each component that is busy. Those that only need others
// are left out: the others are in the list.
func awaited(p state.Process, name string) (out []string) {
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
		out = []string{name + " is starting"}
	}
	return out
}

// starting says what the front does before it has child processes.
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

// latestReady is when the last child process became ready after its last start.
func latestReady(front state.Process) time.Time {
	var last time.Time
	for _, c := range front.Children {
		if c.Ready.After(last) {
			last = c.Ready
		}
	}
	return last
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

// addNode asks the API about the node.
func (r *Report) addNode(ctx context.Context, ask func(context.Context) (*Node, error)) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	node, err := ask(ctx)
	if err != nil {
		r.Reasons = append(r.Reasons, "the API does not say how the node is: "+err.Error())
	} else {
		r.Node = node
		if node == nil || node.Ready {
			return
		}
		r.Reasons = append(r.Reasons, "the node is not Ready: "+node.Message)
	}
	if r.Health == Ready {
		r.Health, r.Since = Degraded, r.Processes[0].Started
	}
}
