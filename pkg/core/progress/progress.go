// Package progress shows the start of coracle: on a terminal as a display of every part, elsewhere as plain lines of log.
package progress

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/logs"
)

// Display draws frames at the bottom of a terminal until End, and errors of the log above them. It is safe for
// concurrent use.
type Display struct {
	// Out is the terminal. Size returns its columns and rows.
	Out  io.Writer
	Size func() (columns, rows int)
	// View returns what to draw.
	View func() View

	mu    sync.Mutex
	drawn int // rows of the last frame
	ended bool
}

// redrawEvery is the period after which the durations in a frame are updated.
const redrawEvery = 100 * time.Millisecond

// Run draws a frame at each change and ten times a second, until ctx is done or End was called.
func (d *Display) Run(ctx context.Context, changed <-chan struct{}) {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for d.draw() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

// draw replaces the frame on the terminal. It returns false after End.
func (d *Display) draw() bool {
	v := d.View()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	d.paint(v, "")
	return true
}

// paint writes text above the frame, in one write against flicker.
func (d *Display) paint(v View, above string) {
	columns, rows := d.Size()
	frame := Frame(v, columns-1)
	if room := max(rows-1, 3); len(frame) > room {
		frame = append(frame[:1:1], frame[len(frame)-room+1:]...) // the title and the last lines
	}
	var b strings.Builder
	b.WriteString(d.erase())
	b.WriteString(above)
	for _, line := range frame {
		b.WriteString(line + "\n")
	}
	d.drawn = len(frame)
	_, _ = io.WriteString(d.Out, b.String()) // there is nowhere to report it
}

// erase moves to the start of the frame and clears the terminal from there.
func (d *Display) erase() string {
	if d.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", d.drawn)
}

// Line shows a line of log, without its newline, if it is an error.
func (d *Display) Line(text string) {
	if logs.Alarming(text) {
		d.show(logs.Colour(text) + "\n")
	}
}

// show writes text above the frame, or at the end after End.
func (d *Display) show(text string) {
	v := d.View()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		_, _ = io.WriteString(d.Out, text)
		return
	}
	d.paint(v, text)
}

// End draws the last frame if keep is true, else removes it, and then writes text. Later calls only write text.
func (d *Display) End(keep bool, text string) {
	v := d.View()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ended:
	case keep:
		d.paint(v, "")
	default:
		_, _ = io.WriteString(d.Out, d.erase())
	}
	d.ended = true
	_, _ = io.WriteString(d.Out, text)
}

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
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
