// Package exitcode prints the error of a command and gives it its exit code.
package exitcode

import (
	"fmt"
	"io"
	"strings"
)

// Usage is a mistake in the command line. Its exit code is 2.
type Usage struct{ Err error }

func (u Usage) Error() string { return u.Err.Error() }

// Unwrap returns the mistake.
func (u Usage) Unwrap() error { return u.Err }

// Usagef makes a Usage as fmt.Errorf makes an error.
func Usagef(format string, args ...any) error { return Usage{fmt.Errorf(format, args...)} }

// Print writes err with "coracle: " before each line. Other programs find messages for users in a log by that prefix.
func Print(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "coracle: %s\n", strings.TrimSuffix(line, "\n"))
	}
}
