// Package progress shows people what is going on: on a terminal a display of every part as it comes up, elsewhere
// plain lines of log.
package progress

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/logs"
)

// Plain writes every line as it is, in one write each. It is safe for use by several goroutines.
type Plain struct {
	W io.Writer
	// Colour is for a terminal.
	Colour bool

	mu sync.Mutex
}

// Line writes one line, which has no end yet.
func (p *Plain) Line(line string) {
	if p.Colour {
		line = logs.Colour(line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.W, line+"\n") // nobody could be told
}

// IsTerminal reports whether a person sees what is written to f.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
