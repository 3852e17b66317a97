// Package progress shows the start of coracle: on a terminal as a display of every part, elsewhere as plain lines of log.
package progress

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Display draws frames at the bottom of a terminal until End, and warnings and errors of the log above them. It is safe for
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

// Line shows a line of log, without its newline, if it is a warning or an error.
func (d *Display) Line(text string) {
	if logs.Alarming(text) {
		d.show(logs.Colour(text) + "\n")
	}
}

// show writes text above the frame, or at the end if there is no frame any more.
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

// View is what a frame of the display shows.
type View struct {
	Title string
	Began time.Time
	Now   time.Time
	// Note describes the progress of the current phase.
	Note  string
	Front state.Process
	// Children are the child processes that have started.
	Children []state.Process
}

// Colours of the terminal, as SGR parameters.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	grey   = "90"
)

func paint(colour, s string) string { return "\x1b[" + colour + "m" + s + "\x1b[0m" }

// headings are the titles of the child processes.
var headings = map[string]string{state.ControlPlane: "control plane", state.Node: "node"}

// Frame draws a view as lines of at most width columns.
func Frame(v View, width int) []string {
	lines := []string{paint(bold, v.Title) + "  " + seconds(v.Now.Sub(v.Began)), ""}
	for _, p := range v.Front.Phases {
		if p.Ended.IsZero() || p.Ended.Sub(p.Began) >= notable {
			lines = append(lines, phase(p, v))
		}
	}
	for _, c := range v.Front.Children {
		lines = append(lines, child(c))
		for _, p := range v.Children {
			if p.PID != c.PID || p.PID == 0 {
				continue
			}
			for _, u := range p.Units {
				lines = append(lines, unit(u, v.Now))
			}
		}
	}
	for i := range lines {
		lines[i] = clip(lines[i], width)
	}
	return lines
}

const nameWidth = 26

// notable is the duration from which on a finished phase keeps its line.
const notable = 50 * time.Millisecond

func row(mark, name, took, note string) string {
	line := fmt.Sprintf("%s %-*s %7s", mark, nameWidth, name, took)
	if note != "" {
		line += "  " + note
	}
	return "  " + strings.TrimRight(line, " ")
}

func phase(p state.Phase, v View) string {
	if p.Ended.IsZero() {
		return row(paint(yellow, "◌"), p.Name, seconds(v.Now.Sub(p.Began)), note(cmp.Or(p.Waiting, v.Note)))
	}
	return row(paint(green, "●"), p.Name, seconds(p.Ended.Sub(p.Began)), "")
}

func child(c state.Child) string {
	name := headings[c.Name]
	if name == "" {
		name = c.Name
	}
	line := "  " + paint(bold, name)
	if c.LastExit != "" {
		line += "  " + paint(red, c.LastExit)
	}
	return line
}

func unit(u lifecycle.Status, now time.Time) string {
	name := "  " + u.Name
	switch u.State {
	case lifecycle.Ready:
		mark := paint(green, "●")
		if u.Waiting != "" {
			mark = paint(yellow, "●")
		}
		return row(mark, name, seconds(u.Ready.Sub(u.Started)), u.Waiting)
	case lifecycle.Starting:
		return row(paint(yellow, "◌"), name, seconds(now.Sub(u.Started)), note(u.Waiting))
	case lifecycle.Failed:
		return row(paint(red, "✗"), name, "", paint(red, u.Error))
	case lifecycle.Stopping, lifecycle.Stopped, lifecycle.Standby:
		return row(paint(grey, "○"), name, "", paint(grey, string(u.State)))
	}
	return row(paint(grey, "·"), name, "", paint(grey, "needs "+strings.Join(u.Needs, ", ")))
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return paint(grey, text)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", max(d, 0).Seconds()) }

// clip cuts a line after width columns, not counting colours.
func clip(s string, width int) string {
	var b strings.Builder
	columns, escape := 0, false
	for _, r := range s {
		switch {
		case escape || r == '\x1b':
			escape = r != 'm'
			b.WriteRune(r)
			continue
		case r < ' ':
			r = ' '
		}
		if columns++; columns <= width {
			b.WriteRune(r)
		}
	}
	return b.String()
}
