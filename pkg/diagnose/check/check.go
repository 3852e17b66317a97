// Package check has the table of probes of a machine. Each probe says what it found, whether coracle can run with that,
// and what to do if not. Probes change nothing on the machine, except that the kernel may load modules.
//
// Three commands run them: the start of a server or agent those without which coracle does not work (Start), `coracle
// check` all of them before there is a coracle, and `coracle doctor` all of them on a machine on which coracle runs, to
// which package doctor adds probes of coracle itself.
//
// The package links no Kubernetes, because the front runs the probes before anything is unpacked.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Result is the one word for what a probe found.
type Result string

// The results, the worse the later. Skipped says that there was nothing to look at, or no way to.
const (
	OK      Result = "ok"
	Skipped Result = "skipped"
	Warn    Result = "warn"
	Fail    Result = "fail"
)

var order = []Result{OK, Skipped, Warn, Fail}

// Verdict is one thing that a probe found.
type Verdict struct {
	Result  Result `json:"result"`
	Finding string `json:"finding"`
	// Fix is what people can do about it: a command, or what to change. "" if there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Okf is the verdict that all is well; the text says what was seen.
func Okf(format string, args ...any) []Verdict {
	return []Verdict{{Result: OK, Finding: fmt.Sprintf(format, args...)}}
}

// Skipf is the verdict that nothing was looked at; the text says why.
func Skipf(format string, args ...any) []Verdict {
	return []Verdict{{Result: Skipped, Finding: fmt.Sprintf(format, args...)}}
}

// Warnf is the verdict that something works, but not well or perhaps not for long. The finding is formatted.
func Warnf(fix, format string, args ...any) []Verdict {
	return []Verdict{{Result: Warn, Finding: fmt.Sprintf(format, args...), Fix: fix}}
}

// Failf is the verdict that something does not work. The finding is formatted.
func Failf(fix, format string, args ...any) []Verdict {
	return []Verdict{{Result: Fail, Finding: fmt.Sprintf(format, args...), Fix: fix}}
}

// Else returns found, or fine if nothing was found.
func Else(found, fine []Verdict) []Verdict {
	if len(found) > 0 {
		return found
	}
	return fine
}

// Probe is one row of the table.
type Probe struct {
	Name  string // short and stable: people name it with --only, and docs/troubleshooting.md has a section for it
	About string // what it looks at
	Run   func(context.Context) []Verdict
}

// Row is one finding of a probe.
type Row struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Verdict
	// Took is how long the probe took, in milliseconds.
	Took int64 `json:"tookMilliseconds"`
}

// Report is what all probes found, in the order of the table. Its JSON form is stable.
type Report struct {
	// Result is the worst of the rows, where being skipped is as good as ok.
	Result Result `json:"result"`
	Rows   []Row  `json:"checks"`
}

// Only keeps the named probes; all of them if no name is given. An unknown name is an error with those that exist.
func Only(probes []Probe, names []string) ([]Probe, error) {
	if len(names) == 0 {
		return probes, nil
	}
	var kept []Probe
	for _, name := range names {
		i := slices.IndexFunc(probes, func(p Probe) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--only: there is no check %q; there are %s", name, strings.Join(Names(probes), ", "))
		}
		kept = append(kept, probes[i])
	}
	return kept, nil
}

// Names are the probes' names, in order.
func Names(probes []Probe) []string {
	names := make([]string, len(probes))
	for i, p := range probes {
		names[i] = p.Name
	}
	return names
}

// Run runs all probes at the same time, each with the time limit. A probe that does not return in time, as when a disk
// hangs, is abandoned and reported as a failure.
func Run(ctx context.Context, probes []Probe, limit time.Duration) Report {
	found := make([][]Row, len(probes))
	var all sync.WaitGroup
	for i, p := range probes {
		all.Go(func() { found[i] = p.rows(ctx, limit) })
	}
	all.Wait()
	report := Report{Result: OK, Rows: slices.Concat(found...)}
	for _, row := range report.Rows {
		if worse(row.Result, report.Result) && row.Result != Skipped {
			report.Result = row.Result
		}
	}
	return report
}

func worse(a, b Result) bool { return slices.Index(order, a) > slices.Index(order, b) }

// grace is how long a probe may go on after its time limit, to report what it waited for.
const grace = 300 * time.Millisecond

func (p Probe) rows(ctx context.Context, limit time.Duration) []Row {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	done := make(chan []Verdict, 1)
	go func() { done <- p.Run(ctx) }()
	late := time.NewTimer(limit + grace)
	defer late.Stop()
	var verdicts []Verdict
	select {
	case verdicts = <-done:
	case <-late.C:
		verdicts = Failf("see whether a disk or a file system hangs: dmesg, and processes in state D",
			"this could not be found out in %s", limit)
	}
	rows := make([]Row, len(verdicts))
	for i, v := range verdicts {
		rows[i] = Row{Name: p.Name, About: p.About, Verdict: v, Took: time.Since(began).Milliseconds()}
	}
	return rows
}
