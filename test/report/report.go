package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/test/slots"
)

// event is one line of go test -json; `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
	// ImportPath is what Package is in other events, where the build of a package says something.
	ImportPath string
}

// result is the outcome of a test.
type result struct {
	name   string  // package and test, as in e2e/TestBackup
	pkg    string  // as packageName returns it
	isSub  bool    // it is a subtest
	action string  // pass, fail or skip; "" while it runs
	waited float64 // for slots, in seconds
	took   float64 // after that, in seconds
	said   []said  // its last messages, with the reason of a skip or failure
}

// report collects the events of one run of go test.
type report struct {
	to     io.Writer
	budget map[string]slots.Row
	tests  map[string]*result
	order  []string            // names of the tests in the order of their start
	output map[string][]string // of tests that have not ended, by top-level test
	failed []string            // packages
	said   map[string]string   // what go test said last of a package, before its own line

	tolerance int // how often its budget a test may take
}

func newReport(to io.Writer, rows []slots.Row) *report {
	r := &report{to: to, budget: map[string]slots.Row{}, tests: map[string]*result{}, output: map[string][]string{}, said: map[string]string{}, tolerance: tolerance}
	for _, row := range rows {
		r.budget[row.Test] = row
	}
	return r
}

// read takes all events. It prints a line that is not an event unchanged.
func (r *report) read(from *bufio.Reader) error {
	for {
		line, err := from.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				_, _ = r.to.Write(line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// packageName is the path of a package below test, or else below the module.
func packageName(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, "github.com/coracle-dev/coracle/"), "test/")
}

// take takes one event.
func (r *report) take(e event) {
	if e.Test == "" {
		r.takePackage(e)
		return
	}
	name := packageName(e.Package) + "/" + e.Test
	topName, _, isSub := strings.Cut(e.Test, "/")
	top := packageName(e.Package) + "/" + topName
	t := r.tests[name]
	if t == nil {
		t = &result{name: name, pkg: packageName(e.Package), isSub: isSub}
		r.tests[name] = t
		r.order = append(r.order, name)
	}
	switch e.Action {
	case "output":
		r.output[top] = append(r.output[top], e.Output)
		t.parse(e)
	case "pass", "fail", "skip":
		t.action = e.Action
		if t.took == 0 { // else known better: Elapsed is without parallel subtests
			t.took = max(0, e.Elapsed-t.waited)
		}
		if _, ok := r.budget[name]; ok {
			fmt.Fprintf(r.to, "--- %s: %s (%.1f s)\n", strings.ToUpper(t.action), t.name, t.took)
		}
		if !isSub {
			r.ended(t)
		}
	}
}

// noise matches lines of go test -v that are useless in the output of a single test.
var noise = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

// ended prints all output of a top-level test if it failed.
func (r *report) ended(t *result) {
	if t.action == "fail" {
		for _, line := range r.output[t.name] {
			if !noise.MatchString(line) {
				fmt.Fprint(r.to, line)
			}
		}
	}
	delete(r.output, t.name)
}

// takePackage prints Go's line for a package, and what the build of a package says.
func (r *report) takePackage(e event) {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.to, e.Output)
		r.hear(e.ImportPath, e.Output)
	case e.Action == "output" && e.Output != "PASS\n" && !strings.HasPrefix(e.Output, "testing: warning: no tests to run"):
		fmt.Fprint(r.to, e.Output)
		r.hear(e.Package, e.Output)
	case e.Action == "fail":
		r.failed = append(r.failed, packageName(e.Package))
		for name, lines := range r.output { // the process ended before these tests did
			if strings.HasPrefix(name, packageName(e.Package)+"/") {
				fmt.Fprint(r.to, strings.Join(lines, ""))
				delete(r.output, name)
			}
		}
	}
}

// hear remembers a line about a package, or about the variant "PACKAGE [PACKAGE.test]" that is built for its tests.
func (r *report) hear(importPath, line string) {
	importPath, _, _ = strings.Cut(importPath, " ")
	if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "FAIL") {
		r.said[packageName(importPath)] = line
	}
}

var (
	waitedLine = regexp.MustCompile(`slots: waited ([0-9.]+) s for`)
	heldLine   = regexp.MustCompile(`slots: held for ([0-9.]+) s`)
)

// parse finds the time that a test waited for slots or held them in a line of its output, or a possible reason.
// The times of the events would not do: go test keeps the result of a test back until the next line of its package comes.
func (t *result) parse(e event) {
	if m := waitedLine.FindStringSubmatch(e.Output); m != nil {
		t.waited, _ = strconv.ParseFloat(m[1], 64)
	} else if m := heldLine.FindStringSubmatch(e.Output); m != nil {
		t.took, _ = strconv.ParseFloat(m[1], 64)
	} else {
		t.hear(e.Output)
	}
}

// shown is the number of tests in the table of the slowest.
const shown = 20

// finish prints the summary of the whole run and reports whether it succeeded.
func (r *report) finish(allowed []skip, strict bool) (good bool) {
	good = true
	var unlisted []*result
	for _, name := range r.order {
		t := r.tests[name]
		if t.action != "skip" {
			continue
		}
		if why, ok := reasonFor(allowed, name); ok {
			fmt.Fprintf(r.to, "skipped: %s: %s\n", name, why)
		} else {
			unlisted = append(unlisted, t)
			good = good && !strict
		}
	}
	slow := r.slowest()
	if len(slow) > 0 {
		fmt.Fprintf(r.to, "\n%8s %8s %8s  the slowest tests, in seconds\n", "took", "budget", "waited")
	}
	for _, t := range slow[:min(shown, len(slow))] {
		fmt.Fprintf(r.to, "%8.1f %8d %8.1f  %s\n", t.took, r.seconds(t.name), t.waited, t.name)
	}
	for _, t := range slow {
		if most := float64(r.tolerance*r.seconds(t.name) + slack); t.took > most {
			fmt.Fprintf(r.to, "too slow: %s took %.1f s, more than %.0f s: make it faster, or change its row in test/slots/budget.txt\n", t.name, t.took, most)
			good = false
		}
	}
	// What makes a run fail comes last, because a log is often cut to its end.
	for _, t := range unlisted {
		fmt.Fprintf(r.to, "skipped, and not in test/report/skips.txt: %s: %s\n", t.name, t.reason())
	}
	explained := map[string]bool{}
	for _, name := range r.order {
		if t := r.tests[name]; t.action == "fail" || t.action == "" {
			explained[t.pkg] = true
			r.explain(t)
		}
	}
	for _, name := range r.failed {
		if !explained[name] {
			fmt.Fprintf(r.to, "failed: %s, though none of its tests did: %s\n", name, r.said[name])
		}
	}
	return good
}

// A test is too slow if it needs more than its budget times tolerance plus slack, in seconds. They allow for slower
// machines and other work on their cores; for machines that are slower still, toleranceEnv replaces the tolerance.
const (
	tolerance = 4
	slack     = 120
)

const toleranceEnv = "CORACLE_TEST_TOLERANCE"

// withoutRow is the budget of a test without a row in budget.txt, in seconds.
const withoutRow = 10

func (r *report) seconds(name string) int {
	if row, ok := r.budget[name]; ok {
		return row.Seconds
	}
	return withoutRow
}

// slowest sorts the tests that have a row and all other top-level tests, the slowest first. A test whose subtests have
// rows is not among them.
func (r *report) slowest() (slow []*result) {
	parents := map[string]bool{}
	for name := range r.budget {
		parents[path.Dir(name)] = true
	}
	for name, t := range r.tests {
		_, hasRow := r.budget[name]
		if hasRow || !t.isSub && !parents[name] {
			slow = append(slow, t)
		}
	}
	slices.SortFunc(slow, func(a, b *result) int { return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.name, b.name)) })
	return slow
}

//go:embed skips.txt
var skips string

// skip is a line of skips.txt: tests that may be skipped, as a pattern of package path.Match, and the reason.
type skip struct{ pattern, reason string }

func allowedSkips() (all []skip, err error) {
	for line := range strings.Lines(skips) {
		pattern, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		s := skip{pattern, strings.TrimSpace(reason)}
		if _, err := path.Match(pattern, ""); err != nil || s.reason == "" {
			return nil, fmt.Errorf("test/report/skips.txt: %q: want a pattern and a reason", line)
		}
		all = append(all, s)
	}
	return all, nil
}

// reasonFor returns the listed reason for skipping a test.
func reasonFor(all []skip, name string) (reason string, ok bool) {
	for _, s := range all {
		if match, _ := path.Match(s.pattern, name); match {
			return s.reason, true
		}
	}
	return "", false
}
