package initsystem

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// shownLines is the number of lines of a log that are shown.
const shownLines = 12

// failure is the error of a service that did not become ready. It has the exit code with which the service ended. over is why
// waiting ended if the service did not end.
func failure(name string, over error, code int, reason, log string) error {
	class := exitcode.Class(code)
	text := fmt.Sprintf("service %s does not start", name)
	switch {
	case errors.Is(over, context.DeadlineExceeded):
		class, text = exitcode.TimedOut, fmt.Sprintf("service %s is not ready in time", name)
	case over != nil:
		return fmt.Errorf("starting service %s: %w", name, over)
	}
	if class <= exitcode.Failed || class > exitcode.Untrusted {
		class = exitcode.Failed
	}
	if reason == "" {
		return exitcode.With(class, fmt.Errorf("%s: see %s", text, log))
	}
	return exitcode.With(class, fmt.Errorf("%s; it says:\n%s", text, reason))
}

// reason returns the part of a log that has the reason for a failure: the last lines that package exitcode wrote for users, or
// the last lines if there are none.
func reason(log string, lines int) string {
	all := strings.Split(strings.TrimSpace(log), "\n")
	end := len(all)
	for end > 0 && !strings.HasPrefix(all[end-1], userPrefix) {
		end--
	}
	begin := end
	for begin > 0 && strings.HasPrefix(all[begin-1], userPrefix) {
		begin--
	}
	if begin < end {
		for i, line := range all[begin:end] {
			all[begin+i] = strings.TrimPrefix(line, userPrefix)
		}
		all = all[begin:end]
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// userPrefix is the prefix of lines that package exitcode writes.
const userPrefix = "coracle: "
