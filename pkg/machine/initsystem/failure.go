package initsystem

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// saidLines is how many lines of a log are shown to people.
const saidLines = 12

// failure is the error of a service that did not become ready. It has the exit code with which the service ended. over is why
// waiting ended if the service did not end.
func failure(name string, over error, code int, said, log string) error {
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
	if said == "" {
		return exitcode.With(class, fmt.Errorf("%s: see %s", text, log))
	}
	return exitcode.With(class, fmt.Errorf("%s; it says:\n%s", text, said))
}

// complaint returns the part of a log that says why something failed: the last lines that package exitcode wrote for people,
// or if there are none the last lines.
func complaint(log string, lines int) string {
	all := strings.Split(strings.TrimSpace(log), "\n")
	end := len(all)
	for end > 0 && !strings.HasPrefix(all[end-1], toPeople) {
		end--
	}
	begin := end
	for begin > 0 && strings.HasPrefix(all[begin-1], toPeople) {
		begin--
	}
	if begin < end {
		for i, line := range all[begin:end] {
			all[begin+i] = strings.TrimPrefix(line, toPeople)
		}
		all = all[begin:end]
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// toPeople is the prefix of lines that package exitcode writes.
const toPeople = "coracle: "
