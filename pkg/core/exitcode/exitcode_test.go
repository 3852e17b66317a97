package exitcode

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestCode(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, 0},
		{"none of a class", With(TimedOut, nil), 0},
		{"plain", plain, 1},
		{"usage", Usagef("wrong"), 2},
		{"wrapped usage", fmt.Errorf("upgrading: %w", Usagef("wrong")), 2},
		{"class", With(Unfit, plain), 3},
		{"wrapped class", fmt.Errorf("waiting: %w", With(TimedOut, plain)), 4},
		{"one of several", errors.Join(plain, With(Unreachable, plain)), 5},
		{"the outer class wins", With(RolledBack, fmt.Errorf("new version: %w", With(TimedOut, plain))), 6},
		{"a class around usage", With(Untrusted, Usagef("wrong")), 7},
		{"all was printed", fmt.Errorf("running: %w", Silent(130)), 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Code(c.err); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
	if err := With(TimedOut, plain); !errors.Is(err, plain) || err.Error() != "plain" {
		t.Errorf("a class changes the error to %v", err)
	}
}

func TestList(t *testing.T) {
	var b strings.Builder
	List(&b)
	if lines := strings.Split(strings.TrimSpace(b.String()), "\n"); len(lines) != int(Removed)+1 {
		t.Errorf("not every class is listed:\n%s", b.String())
	}
}
