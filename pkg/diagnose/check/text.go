package check

import (
	"fmt"
	"io"
	"strings"
)

// Text writes the report for people: a line for each finding, with the fix below it, and a sum. The colours are those of
// terminals, if wanted.
func (r Report) Text(w io.Writer, colours bool) error {
	width := 0
	for _, row := range r.Rows {
		width = max(width, len(row.Name))
	}
	var b strings.Builder
	counts := map[Result]int{}
	last := ""
	for _, row := range r.Rows {
		counts[row.Result]++
		name := row.Name
		if name == last {
			name = ""
		}
		last = row.Name
		fmt.Fprintf(&b, "%s  %-*s  %s\n", word(row.Result, colours), width, name, row.Finding)
		if row.Fix != "" {
			fmt.Fprintf(&b, "%*s  fix: %s\n", len(Skipped)+2+width, "", row.Fix)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d to look at, %d failed, %d skipped\n", counts[OK], counts[Warn], counts[Fail], counts[Skipped])
	if counts[Warn]+counts[Fail] > 0 {
		b.WriteString("docs/troubleshooting.md says more about each by its name\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// word is the result, as wide as the longest.
func word(r Result, colours bool) string {
	text := fmt.Sprintf("%-*s", len(Skipped), r)
	if !colours {
		return text
	}
	const green, yellow, red, grey = 32, 33, 31, 90
	colour := map[Result]int{OK: green, Warn: yellow, Fail: red, Skipped: grey}[r]
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, text)
}
