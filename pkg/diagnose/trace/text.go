package trace

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The limits of a waterfall in columns. Narrower terminals wrap.
const (
	minWidth = 60
	maxWidth = 160
	timeCols = 22 // "  00.00s + 00.00s"
)

// Text draws the trace with block characters in the given number of columns.
func (t Trace) Text(w io.Writer, width int) error {
	width = min(max(width, minWidth), maxWidth)
	var b strings.Builder
	for i, p := range t.Parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		p.text(&b, width)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Part) text(b *strings.Builder, width int) {
	fmt.Fprintf(b, "%s, %s\n\n", p.Title, p.Zero.Format("2006-01-02 15:04:05"))
	names := 0
	for _, r := range p.Rows {
		names = max(names, utf8.RuneCountInString(r.label()))
	}
	scale := scale{columns: width - names - 1 - timeCols, length: p.Length}
	line := func(name, bar, note string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s %-*s%s", names, name, scale.columns, bar, note), " "))
		b.WriteByte('\n')
	}
	line("", scale.axis(), fmt.Sprintf("  %7s   %7s", "began", "took"))
	for _, r := range p.Rows {
		if r.Kind == Process && r.Name != p.Rows[0].Name {
			b.WriteByte('\n')
		}
		line(r.label(), scale.bar(r), r.note())
	}
	if len(p.Milestones) > 0 {
		b.WriteByte('\n')
	}
	for _, m := range p.Milestones {
		line(m.Name, strings.Repeat(" ", scale.column(m.At))+"▲", fmt.Sprintf("  %6.2fs", m.At))
	}
}

// label is the row's name, indented below its process.
func (r Row) label() string {
	if r.Kind == Process {
		return r.Name
	}
	return "  " + r.Name
}

func (r Row) note() string {
	switch {
	case r.Standby:
		return fmt.Sprintf("  %6.2fs   standby", r.Began)
	case r.Failed != "":
		return fmt.Sprintf("  %6.2fs   failed: %s", r.Began, r.Failed)
	case r.Open && r.Began == r.Ended:
		return "  needs " + strings.Join(r.Needs, ", ")
	case r.Open:
		return fmt.Sprintf("  %6.2fs   %6.2fs …", r.Began, r.Took())
	}
	return fmt.Sprintf("  %6.2fs   %6.2fs", r.Began, r.Took())
}

// scale lays seconds out over columns.
type scale struct {
	columns int
	length  float64 // seconds
}

// eighths returns the position of a moment in eighths of a column.
func (s scale) eighths(at float64) int {
	if s.length == 0 {
		return 0
	}
	return int(at/s.length*float64(s.columns)*8 + 0.5)
}

// column returns the column of a moment.
func (s scale) column(at float64) int { return min(s.eighths(at)/8, s.columns-1) }

// The left part of a column, in eighths.
var blocks = []rune(" ▏▎▍▌▋▊▉█")

// bar draws dots while the row waits and blocks while it works, at least one block.
func (s scale) bar(r Row) string {
	queued, began, ended := s.column(r.Queued), s.eighths(r.Began), s.eighths(r.Ended)
	began, ended = min(began, s.columns*8-1), max(ended, began+1)
	cells := []rune(strings.Repeat(" ", s.columns))
	for i := queued; i < began/8; i++ {
		cells[i] = '·'
	}
	if r.Standby || r.Open && r.Began == r.Ended {
		return string(cells) // it has not begun
	}
	for i := began / 8; i < s.columns && i*8 < ended; i++ {
		// A bar that begins inside a column fills it: blocks grow from the left only.
		cells[i] = blocks[min(ended-i*8, 8)]
	}
	return string(cells)
}

// steps are distances between marks on the axis, in seconds.
var steps = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}

// step returns the smallest distance between marks that leaves at least room columns.
func (s scale) step(room int) float64 {
	for _, step := range steps {
		if step/s.length*float64(s.columns) >= float64(room) {
			return step
		}
	}
	return s.length
}

// axis writes the seconds over the columns.
func (s scale) axis() string {
	if s.length == 0 {
		return "0s"
	}
	cells := []rune(strings.Repeat(" ", s.columns))
	step := s.step(8)
	for i := 0; float64(i)*step <= s.length; i++ {
		mark := []rune(seconds(float64(i) * step))
		at := s.column(float64(i) * step)
		if at+len(mark) <= len(cells) {
			copy(cells[at:], mark)
		}
	}
	return string(cells)
}

// seconds writes a mark of the axis: 0.5s.
func seconds(s float64) string {
	text := fmt.Sprintf("%.2f", s)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "s"
}
