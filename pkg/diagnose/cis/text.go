package cis

import (
	"fmt"
	"io"
	"strings"
)

// Text writes the report for people: a line for each finding with the evidence below it, and a sum.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, --profile=%s\n\n", r.Benchmark, r.Profile)
	counts := map[Result]int{}
	for _, f := range r.Findings {
		counts[f.Result]++
		fmt.Fprintf(&b, "%-14s  %-6s  %s\n", f.Result, f.ID, f.About)
		fmt.Fprintf(&b, "%24s  %s\n", "", f.Evidence)
		if f.Reason != "" {
			fmt.Fprintf(&b, "%24s  (%s)\n", "", f.Reason)
		}
	}
	fmt.Fprintf(&b, "\n%d pass, %d not applicable, %d to look at, %d failed\n", counts[Pass], counts[NotApplicable], counts[Warn], counts[Fail])
	_, err := io.WriteString(w, b.String())
	return err
}
