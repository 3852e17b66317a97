package check

import (
	"context"
	"errors"
	"sync"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Start runs the probes without which coracle does not start. It hands warnings to warn and returns failures as one
// error, a line for each.
func Start(cfg config.Config, warn func(error)) error {
	return start(&Machine{Config: cfg, starting: true}, table, warn)
}

func start(m *Machine, rows []row, warn func(error)) error {
	found := make([][]Verdict, len(rows))
	var all sync.WaitGroup
	for _, r := range rows {
		if r.when&firstAtStart == 0 {
			continue
		}
		if err := failures(r.run(context.Background(), m)); err != nil {
			return err
		}
	}
	for i, r := range rows {
		if r.when&atStart != 0 {
			all.Go(func() { found[i] = r.run(context.Background(), m) })
		}
	}
	all.Wait()
	var wrong []error
	for _, verdicts := range found {
		for _, v := range verdicts {
			if v.Result == Warn {
				warn(v)
			}
		}
		wrong = append(wrong, failures(verdicts))
	}
	return errors.Join(wrong...)
}

// failures returns the verdicts with the result Fail as one error; nil if there is none.
func failures(verdicts []Verdict) error {
	var wrong []error
	for _, v := range verdicts {
		if v.Result == Fail {
			wrong = append(wrong, v)
		}
	}
	return errors.Join(wrong...)
}

// Error is the finding and the fix in one sentence.
func (v Verdict) Error() string {
	if v.Fix == "" {
		return v.Finding
	}
	return v.Finding + ": " + v.Fix
}
