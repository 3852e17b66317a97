// Package progress shows the start of coracle: on a terminal as a display of every part, elsewhere as plain lines of log.
package progress

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/logs"
)

// Plain writes each line with one write. It is safe for concurrent use.
type Plain struct {
	W io.Writer
	// Colour colours the lines, for a terminal.
	Colour bool

	mu sync.Mutex
}

// Line writes a line and a newline.
func (p *Plain) Line(line string) {
	if p.Colour {
		line = logs.Colour(line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.W, line+"\n") // there is nowhere to report it
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
