package trace

import (
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"
)

// Sizes in pixels.
const (
	rowHeight  = 20
	barHeight  = 12
	nameWidth  = 7.2 // of one letter
	plotWidth  = 760
	timesWidth = 150
	topHeight  = 62 // title and axis
	margin     = 16
)

// svgHead gives the colours, for light and dark pages.
const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<style>
svg{background:#fff;color:#1b1f24}
text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:currentColor}
.title{font-size:14px;font-weight:600}.dim{opacity:.6}.process{font-weight:600}
.grid{stroke:currentColor;stroke-opacity:.12}.milestone{stroke:#c2410c;stroke-dasharray:3 3}.mark{fill:#c2410c}
.wait{fill:currentColor;fill-opacity:.15}.bar{fill:#2f6fb0}.bar.process{fill:#8aa4bd}.bar.failed{fill:#b91c1c}.bar.open{fill-opacity:.5}
@media(prefers-color-scheme:dark){svg{background:#14181d;color:#e6e9ed}.bar{fill:#5b9bd9}.bar.process{fill:#51677c}.milestone{stroke:#fb923c}.mark{fill:#fb923c}}
</style>
`

// SVG draws the trace as one self-contained picture.
func (t Trace) SVG(w io.Writer) error {
	names := 0
	for _, p := range t.Parts {
		for _, r := range p.Rows {
			names = max(names, utf8.RuneCountInString(r.label()))
		}
	}
	d := drawing{left: margin + int(float64(names+1)*nameWidth), top: margin}
	for _, p := range t.Parts {
		d.part(p)
	}
	width := d.left + plotWidth + timesWidth + margin
	_, err := fmt.Fprintf(w, svgHead+"%[3]s</svg>\n", width, d.top, d.body.String())
	return err
}

// drawing collects the elements of a picture from top to bottom.
type drawing struct {
	body strings.Builder
	left int // where the plot begins
	top  int // where the next part goes
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.body, format+"\n", args...) }

func (d *drawing) text(x float64, y int, class, anchor, text string) {
	d.add(`<text x="%.1f" y="%d" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(text))
}

func (d *drawing) part(p Part) {
	x := func(at float64) float64 {
		if p.Length == 0 {
			return float64(d.left)
		}
		return float64(d.left) + at/p.Length*plotWidth
	}
	rows := d.top + topHeight
	bottom := rows + len(p.Rows)*rowHeight
	d.text(margin, d.top+14, "title", "start", p.Title)
	d.text(float64(d.left+plotWidth+timesWidth), d.top+14, "dim", "end", p.Zero.Format("2006-01-02 15:04:05"))
	if p.Length > 0 {
		step := scale{columns: plotWidth, length: p.Length}.step(70)
		for i := 0; float64(i)*step <= p.Length; i++ {
			at := x(float64(i) * step)
			d.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="grid"/>`, at, rows-6, at, bottom)
			d.text(at, rows-12, "dim", "middle", seconds(float64(i)*step))
		}
	}
	for i, r := range p.Rows {
		d.row(r, rows+i*rowHeight, x)
	}
	for i, m := range p.Milestones {
		at, y := x(m.At), bottom+16+i*rowHeight
		d.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="milestone"/>`, at, rows-6, at, y-10)
		d.text(at, y, "mark", "middle", fmt.Sprintf("%s %.2fs", m.Name, m.At))
	}
	d.top = bottom + len(p.Milestones)*rowHeight + 2*margin
}

// row draws one bar with its name at the left and its times at the right.
func (d *drawing) row(r Row, y int, x func(float64) float64) {
	base, bar := y+14, y+(rowHeight-barHeight)/2
	indent, class := 0.0, string(r.Kind)
	if r.Kind != Process {
		indent = 2 * nameWidth
	}
	d.text(margin+indent, base, class, "start", r.Name)
	if r.Failed != "" {
		class += " failed"
	}
	if r.Open {
		class += " open"
	}
	d.add(`<g><title>%s</title>`, html.EscapeString(r.tip()))
	if r.Began > r.Queued {
		d.add(`<rect x="%.1f" y="%d" width="%.1f" height="2" class="wait"/>`, x(r.Queued), y+rowHeight/2-1, x(r.Began)-x(r.Queued))
	}
	times := "standby"
	if !r.Standby {
		times = fmt.Sprintf("%.2fs + %.2fs", r.Began, r.Took())
		fmt.Fprintf(&d.body, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2" class="bar %s"/>`,
			x(r.Began), bar, max(1.5, x(r.Ended)-x(r.Began)), barHeight, class)
	}
	d.add(`</g>`)
	d.text(float64(d.left+plotWidth+timesWidth), base, "dim", "end", times)
}

// tip is the text that a browser shows over the bar.
func (r Row) tip() string {
	text := fmt.Sprintf("%s: began at %.3fs, took %.3fs", r.Name, r.Began, r.Took())
	if len(r.Needs) > 0 {
		text += ", needs " + strings.Join(r.Needs, ", ")
	}
	if r.Failed != "" {
		text += ", failed: " + r.Failed
	}
	return text
}
