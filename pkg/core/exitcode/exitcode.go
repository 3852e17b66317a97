// Package exitcode tells people what went wrong with a command.
package exitcode

import (
	"fmt"
	"io"
	"strings"
)

// Usage is a mistake in how a command was called, as against one in what it did. Its exit code is 2.
type Usage struct{ Err error }

func (u Usage) Error() string { return u.Err.Error() }

// Unwrap is the mistake itself.
func (u Usage) Unwrap() error { return u.Err }

// Usagef is a Usage made like fmt.Errorf's errors.
func Usagef(format string, args ...any) error { return Usage{fmt.Errorf(format, args...)} }

// Print writes err with "coracle: " before each line, by which other programs find what is meant for people in a log.
func Print(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "coracle: %s\n", strings.TrimSuffix(line, "\n"))
	}
}
