package supportbundle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/quantity"
)

// readme lists the files of the bundle, and what is missing and why.
func readme(b Bundle, outcomes []Outcome) []byte {
	var w strings.Builder
	fmt.Fprintf(&w, "%s\nMade at %s.\n\n", b.Title, b.Made.UTC().Format(time.RFC3339))
	w.WriteString(`Secrets that were recognised have been replaced by "(removed)". The bundle contains names of machines, pods and images,
addresses, and lines of logs. Look through it before you share it.

Files:

`)
	for _, o := range outcomes {
		var size int64
		for _, f := range o.Files {
			size += int64(f.Size)
		}
		fmt.Fprintf(&w, "%-34s %9s   %s\n", o.Name, quantity.Bytes(size), o.About)
		if len(o.Files) > 1 || len(o.Files) == 1 && o.Files[0].Name != o.Name {
			for _, f := range o.Files {
				fmt.Fprintf(&w, "    %-30s %9s\n", strings.TrimPrefix(f.Name, o.Name+"/"), quantity.Bytes(int64(f.Size)))
			}
		}
	}
	notes := slices.Clone(b.Notes)
	for _, o := range outcomes {
		for _, note := range o.Notes {
			notes = append(notes, o.Name+": "+note)
		}
	}
	if len(notes) == 0 {
		w.WriteString("\nNothing is missing.\n")
		return []byte(w.String())
	}
	w.WriteString("\nMissing or incomplete, and why:\n\n")
	for _, note := range notes {
		fmt.Fprintf(&w, "- %s\n", strings.ReplaceAll(strings.TrimSpace(note), "\n", "\n  "))
	}
	return []byte(w.String())
}
