package progress

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

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

// paint colours a text. Nothing stays nothing.
func paint(colour, s string) string {
	if s == "" {
		return ""
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

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
		return row(paint(yellow, "◌"), p.Name, seconds(v.Now.Sub(p.Began)), paint(grey, cmp.Or(p.Waiting, v.Note)))
	}
	return row(paint(green, "●"), p.Name, seconds(p.Ended.Sub(p.Began)), "")
}

func child(c state.Child) string {
	line := "  " + paint(bold, cmp.Or(headings[c.Name], c.Name))
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
		return row(paint(yellow, "◌"), name, seconds(now.Sub(u.Began())), paint(grey, u.Waiting))
	case lifecycle.Failed:
		return row(paint(red, "✗"), name, "", paint(red, u.Error))
	case lifecycle.Stopping, lifecycle.Stopped, lifecycle.Standby:
		return row(paint(grey, "○"), name, "", paint(grey, string(u.State)))
	}
	return row(paint(grey, "·"), name, "", paint(grey, "needs "+strings.Join(u.Needs, ", ")))
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
