package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// mostNames is how many failed tests are named; the JUnit file has all.
const mostNames = 50

// summarize reads the JUnit file.
func (r *Runner) summarize() (results.Summary, error) {
	path := filepath.Join(r.run.Dir(r.Output), results.JUnit)
	f, err := os.Open(path)
	if err != nil {
		return results.Summary{}, err
	}
	defer f.Close()
	s, err := results.Summarize(f)
	if err != nil {
		return s, fmt.Errorf("reading %s: %w", path, err)
	}
	return s, nil
}

// report prints how the run went, where its results are, and what is missing before the CNCF can get them.
func (r *Runner) report(s results.Summary, archive string, missing []string) {
	if r.DryRun {
		fmt.Fprintf(r.Out, "dry run: %d tests would run, %d are left out\n", s.Passed, s.Skipped)
	} else {
		fmt.Fprintln(r.Out, s)
	}
	for _, name := range s.Failures[:min(len(s.Failures), mostNames)] {
		fmt.Fprintf(r.Out, "failed: %s\n", name)
	}
	if more := s.Failed - mostNames; more > 0 {
		fmt.Fprintf(r.Out, "and %d more\n", more)
	}
	r.note("results are in %s, packed in %s", r.run.Dir(r.Output), archive)
	if why := r.run.Unfit(s); why != "" {
		r.note("the CNCF certifies whole runs in which nothing fails; this is none: %s", why)
		return
	}
	r.note("to submit them, see https://github.com/cncf/k8s-conformance")
	if len(missing) > 0 {
		r.note("in PRODUCT.yaml a person has to fill in: %s", strings.Join(missing, ", "))
	}
}
