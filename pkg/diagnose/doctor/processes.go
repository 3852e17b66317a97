package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

// processes are coracle's processes according to their state files and the kernel.
type processes struct {
	front      state.Process
	frontAlive bool
	children   map[string]state.Process // those that run, by name
	stuck      map[string]string        // why processes that run do nothing
	err        error                    // why a file cannot be read
}

func readProcesses(dirs paths.Dirs) processes {
	out := processes{children: map[string]state.Process{}, stuck: map[string]string{}}
	for _, name := range append([]string{state.Front}, children...) {
		p, ok, err := state.Read(dirs, name)
		if err != nil {
			out.err = err
			continue
		}
		alive := ok && p.Alive()
		if name == state.Front {
			out.front, out.frontAlive = p, alive
		} else if alive {
			out.children[name] = p
		}
		if alive {
			look := func() byte {
				now, _ := process.Find(p.PID)
				return now.State
			}
			if why := stuck(look, func() { <-time.After(50 * time.Millisecond) }); why != "" {
				out.stuck[name] = why
			}
		}
	}
	return out
}

// waitsForDisk is what stuck says of a process that a signal cannot end.
const waitsForDisk = "it has been waiting for a disk for half a second"

// stuck returns why a process does nothing, "" if it can run. look returns the kernel's letter for its state. A process that writes waits for the disk again
// and again, which only counts if it lasts.
func stuck(look func() byte, pause func()) string {
	for range 10 {
		switch look() {
		case 'T', 't':
			return "it was stopped by a signal or a debugger"
		case 'D':
			pause()
		default:
			return ""
		}
	}
	return waitsForDisk
}

func (p processes) any() bool { return p.frontAlive || len(p.children) > 0 }

func (p processes) detail(name string, into any) bool {
	for _, child := range p.children {
		if raw := child.Details[name]; raw != nil && json.Unmarshal(raw, into) == nil {
			return true
		}
	}
	return false
}

// unit returns the status of a component.
func (p processes) unit(name string) (lifecycle.Status, bool) {
	for _, child := range p.children {
		if u, ok := child.Unit(name); ok {
			return u, true
		}
	}
	return lifecycle.Status{}, false
}

func (d *Doctor) alive(context.Context) []check.Verdict { return d.processes().judge(time.Now()) }

// patience is the time after which a start that has not finished is a failure.
const patience = 90 * time.Second

func (p processes) judge(now time.Time) (out []check.Verdict) {
	if p.err != nil {
		out = append(out, check.Failf("use sudo; if that does not help, restart coracle, which writes the files again",
			"the state of coracle cannot be read: %v", p.err)...)
	}
	if !p.frontAlive {
		out = append(out, check.Failf("start it: systemctl start coracle, of an agent systemctl start coracle-agent, or coracle server; coracle logs shows how it ended",
			"coracle does not run here%s", lastWords(p.front.Children))...)
		for _, name := range children {
			if child, ok := p.children[name]; ok {
				out = append(out, check.Warnf("start coracle, which takes over", "the process %s (pid %d) runs without a supervisor", name, child.PID)...)
			}
		}
		return out
	}
	for _, name := range append([]string{state.Front}, children...) {
		if why, ok := p.stuck[name]; ok {
			pid := cmp.Or(p.children[name].PID, p.front.PID)
			fix := fmt.Sprintf("kill -CONT %d, or kill -9 %d: coracle restarts it", pid, pid)
			if why == waitsForDisk {
				fix = "look for errors of the disk with dmesg, and for what else keeps it busy"
			}
			out = append(out, check.Failf(fix, "the process %s (%d) does nothing: %s", name, pid, why)...)
		}
	}
	for _, phase := range p.front.Phases {
		if phase.Ended.IsZero() && phase.Waiting != "" {
			out = append(out, check.Failf("check whether the servers can be reached, and see docs/joining.md", "coracle is waiting: %s", phase.Waiting)...)
		}
	}
	for _, c := range p.front.Children {
		out = append(out, judgeChild(c, now)...)
	}
	return check.Else(out, check.Okf("%s", p.living()))
}

func judgeChild(c state.Child, now time.Time) []check.Verdict {
	switch {
	case c.State == "ready":
		return nil
	case c.State == "starting" && now.Sub(c.Started) < patience:
		return check.Warnf("wait: coracle wait", "the process %s is starting: %s", c.Name, cmp.Or(c.Status, "it has just begun"))
	case c.State == "starting":
		return check.Failf("see check components for what it waits for", "the process %s has been starting for %s: %s",
			c.Name, now.Sub(c.Started).Round(time.Second), cmp.Or(c.Status, "it does not report why"))
	case c.State == "backoff":
		return check.Failf("fix what its last line says; coracle logs has more; coracle restarts it",
			"the process %s does not stay up: it %s", c.Name, cmp.Or(c.LastExit, "ended"))
	}
	return check.Failf("restart coracle", "the process %s is %s", c.Name, cmp.Or(c.State, "unknown"))
}

func (p processes) living() string {
	parts := []string{fmt.Sprintf("coracle %s (%d)", p.front.Version, p.front.PID)}
	for _, name := range children {
		if child, ok := p.children[name]; ok {
			parts = append(parts, fmt.Sprintf("%s (%d)", name, child.PID))
		}
	}
	return strings.Join(parts, ", ")
}

func lastWords(children []state.Child) string {
	for _, c := range children {
		if c.LastExit != "" && c.LastExit != "was stopped" {
			return fmt.Sprintf("; the process %s %s", c.Name, c.LastExit)
		}
	}
	return ""
}

func (d *Doctor) restarts(context.Context) []check.Verdict {
	return judgeRestarts(d.processes().front.Children, time.Now())
}

func judgeRestarts(children []state.Child, now time.Time) (out []check.Verdict) {
	const recent = time.Hour
	for _, c := range children {
		if c.Restarts > 0 && c.LastExit != "" && now.Sub(c.LastExitAt) < recent {
			out = append(out, check.Warnf("coracle logs shows what came before",
				"the process %s was restarted %s, the last time at %s: it %s", c.Name, times(c.Restarts), c.LastExitAt.Format(time.TimeOnly), c.LastExit)...)
		}
	}
	return check.Else(out, check.Okf("none in the last hour"))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (d *Doctor) components(context.Context) []check.Verdict {
	var out []check.Verdict
	count := 0
	for _, name := range children {
		child := d.processes().children[name]
		count += len(child.Units)
		out = append(out, judgeUnits(name, child.Units, time.Now())...)
	}
	return check.Else(out, check.Okf("all %d are ready", count))
}

// judgeUnits judges the components of a child process, except those that only wait for other components.
func judgeUnits(child string, units []lifecycle.Status, now time.Time) (out []check.Verdict) {
	for _, u := range units {
		switch {
		case u.State == lifecycle.Failed, u.State == lifecycle.Stopped && u.Error != "":
			out = append(out, check.Failf("coracle logs --component "+u.Name+" has more; coracle restarts the process", "%s of %s failed: %s", u.Name, child, u.Error)...)
		case u.State == lifecycle.Ready && u.Waiting != "":
			out = append(out, check.Warnf("coracle logs --component "+u.Name+" has more", "%s of %s has a problem: %s", u.Name, child, u.Waiting)...)
		case u.State == lifecycle.Starting && now.Sub(u.Began()) < patience:
			out = append(out, check.Warnf("wait: coracle wait", "%s of %s is starting: %s", u.Name, child, cmp.Or(u.Waiting, "it does not report what it waits for"))...)
		case u.State == lifecycle.Starting:
			out = append(out, check.Failf("fix what it waits for; coracle logs --component "+u.Name+" has more", "%s of %s has been starting for %s and waits for %s",
				u.Name, child, now.Sub(u.Began()).Round(time.Second), cmp.Or(u.Waiting, "something that it does not report"))...)
		}
	}
	return out
}

func (d *Doctor) manifests(context.Context) []check.Verdict {
	var all []state.Manifest
	if !d.detail(state.ManifestsDetail, &all) {
		return check.Skipf("there is no report about them yet")
	}
	return judgeManifests(all)
}

func judgeManifests(all []state.Manifest) (out []check.Verdict) {
	applied := 0
	for _, m := range all {
		switch m.State {
		case state.ManifestFailed:
			out = append(out, check.Failf("fix the file: it is applied again when it changes", "%s: %s", m.File, m.Error)...)
		case state.ManifestPending:
			out = append(out, check.Warnf("check what it waits for: it is applied when that exists", "%s is not applied yet: %s", m.File, cmp.Or(m.Error, "it is waiting"))...)
		case state.ManifestApplied:
			applied++
		}
	}
	slices.SortStableFunc(out, func(a, b check.Verdict) int { return strings.Compare(string(a.Result), string(b.Result)) })
	return check.Else(first(out, 20), check.Okf("%d are applied", applied))
}
