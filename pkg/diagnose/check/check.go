// Package check has the table of probes of a machine. Each probe reports what it found, whether coracle can run with that,
// and how to fix it if not. Probes change nothing on the machine, except that the kernel may load modules.
//
// Three commands run probes. The start of a server or agent runs those whose failure prevents coracle from working (Start).
// `coracle check` runs all of them on a machine without coracle. `coracle doctor` runs all of them where coracle runs, and
// package doctor adds probes of coracle itself.
//
// The package links no Kubernetes, because the front runs the probes before the payload is unpacked.
package check

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Result sums up a finding in one word.
type Result string

// The results, from best to worst. Skipped means that there was nothing to check, or no way to check it.
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
	// Fix is a command, or what to change; "" if there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Okf returns the verdict OK; the text describes what was found.
func Okf(format string, args ...any) []Verdict {
	return []Verdict{{Result: OK, Finding: fmt.Sprintf(format, args...)}}
}

// Skipf returns the verdict Skipped; the text gives the reason.
func Skipf(format string, args ...any) []Verdict {
	return []Verdict{{Result: Skipped, Finding: fmt.Sprintf(format, args...)}}
}

// Warnf returns the verdict that something works, but not well or perhaps not for long. The finding is formatted.
func Warnf(fix, format string, args ...any) []Verdict {
	return []Verdict{{Result: Warn, Finding: fmt.Sprintf(format, args...), Fix: fix}}
}

// Failf returns the verdict that something does not work. The finding is formatted.
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
	Name  string // short and stable: --only takes it, and docs/troubleshooting.md has a section for it
	About string // what it checks
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
	// Result is the worst result of the rows, where Skipped counts as OK.
	Result Result `json:"result"`
	Rows   []Row  `json:"checks"`
}

// Only returns the named probes; all of them if no name is given. The error for an unknown name lists the known ones.
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

// Names returns the names of probes, in order.
func Names(probes []Probe) []string {
	names := make([]string, len(probes))
	for i, p := range probes {
		names[i] = p.Name
	}
	return names
}

// Limit is how long a probe may take.
type Limit struct {
	// Answer is how long a probe waits for others, such as a name server.
	Answer time.Duration
	// Patience is how much longer a probe may be at work itself: a slow machine takes long to load the kernel's modules.
	Patience time.Duration
	// Slow, if not nil, is called when a probe needs patience, perhaps by several probes at once.
	Slow func(Probe)
}

// Run runs all probes at the same time, each with the limit. A probe that does not return in time, as when a disk
// hangs, is abandoned and reported as a failure.
func Run(ctx context.Context, probes []Probe, limit Limit) Report {
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

// grace is how long a probe may continue after its time limit, to report what it waited for.
const grace = 300 * time.Millisecond

func (p Probe) rows(ctx context.Context, limit Limit) []Row {
	ctx, cancel := context.WithTimeout(ctx, limit.Answer)
	defer cancel()
	began := time.Now()
	done := make(chan []Verdict, 1)
	go func() {
		if os.Geteuid() != 0 && p.Name != table[0].name {
			done <- Skipf("only root can check this")
			return
		}
		done <- p.Run(ctx)
	}()
	verdicts, ok := within(done, limit.Answer+grace)
	if !ok && limit.Patience > 0 {
		if limit.Slow != nil {
			limit.Slow(p)
		}
		verdicts, ok = within(done, limit.Patience)
	}
	if !ok {
		verdicts = Failf("look for a disk or file system that hangs: dmesg, and processes in state D",
			"the probe did not finish in %s", limit.Answer+limit.Patience)
	}
	rows := make([]Row, len(verdicts))
	for i, v := range verdicts {
		rows[i] = Row{Name: p.Name, About: p.About, Verdict: v, Took: time.Since(began).Milliseconds()}
	}
	return rows
}

// within returns what done has within a time, and whether it had something.
func within(done <-chan []Verdict, limit time.Duration) ([]Verdict, bool) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case verdicts := <-done:
		return verdicts, true
	case <-late.C:
		return nil, false
	}
}
