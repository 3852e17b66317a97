package preflight

import "fmt"

// Trouble is something wrong with the machine, and what people can do about it.
type Trouble struct {
	Finding string // names the thing
	Fix     string // a command, or what to change
}

// Error is both in one sentence.
func (t *Trouble) Error() string { return t.Finding + ": " + t.Fix }

// trouble makes a Trouble; the finding is formatted.
func trouble(fix, finding string, args ...any) error {
	return &Trouble{Finding: fmt.Sprintf(finding, args...), Fix: fix}
}

// Warning is something that works today and is worth a line in the log.
type Warning struct{ error }

// Unwrap is what the warning is about.
func (w Warning) Unwrap() error { return w.error }
