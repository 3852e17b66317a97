// Package check looks at a machine by a table of probes, each of which says what it found, whether that does, and what
// to do if it does not. What is here needs no coracle on the machine and changes nothing on it; package doctor adds what
// can be asked of one that runs.
//
// It links no Kubernetes, because the front runs it before anything is unpacked.
package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/diagnose/preflight"
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
	// Fix is what people can do about it, with a command or a document; "" if nothing has to be done.
	Fix string `json:"fix,omitempty"`
}

// Okf says that all is well, and what was seen.
func Okf(format string, args ...any) []Verdict {
	return []Verdict{{Result: OK, Finding: fmt.Sprintf(format, args...)}}
}

// Skipf says why there was nothing to find out.
func Skipf(format string, args ...any) []Verdict {
	return []Verdict{{Result: Skipped, Finding: fmt.Sprintf(format, args...)}}
}

// Warnf says that something works and may soon not, or not well. The finding is formatted.
func Warnf(fix, format string, args ...any) []Verdict {
	return []Verdict{{Result: Warn, Finding: fmt.Sprintf(format, args...), Fix: fix}}
}

// Failf says that something does not work. The finding is formatted.
func Failf(fix, format string, args ...any) []Verdict {
	return []Verdict{{Result: Fail, Finding: fmt.Sprintf(format, args...), Fix: fix}}
}

// Else is what was found, or fine if that is nothing.
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

// Run makes all probes at the same time and gives each the time limit. One that does not heed it, as when a disk hangs,
// is left behind and reported.
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

// grace is how long a probe may go on after its time, to say what it was waiting for.
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

// From turns what preflight says into verdicts, one for each thing that is wrong.
func From(err error) []Verdict {
	if err == nil {
		return nil
	}
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		var out []Verdict
		for _, one := range several.Unwrap() {
			out = append(out, From(one)...)
		}
		return out
	}
	v := Verdict{Result: Fail, Finding: err.Error()}
	var trouble *preflight.Trouble
	if errors.As(err, &trouble) {
		v.Finding, v.Fix = trouble.Finding, trouble.Fix
	}
	if errors.As(err, new(preflight.Warning)) {
		v.Result = Warn
	}
	return []Verdict{v}
}
