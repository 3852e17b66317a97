package reset

import (
	"fmt"
	"path/filepath"
)

// grouped is the number of items of one kind in one directory from which on Summary has one line for all of them.
const grouped = 5

// Summary describes items to people, one line each; many of the same kind in one directory, as libcni's results, share one.
func Summary(items []Item) (lines []string) {
	type group struct{ kind, dir string }
	of := func(i Item) group { return group{i.Kind, filepath.Dir(i.Name)} }
	count := map[group]int{}
	for _, i := range items {
		if filepath.IsAbs(i.Name) && i.Detail == "" {
			count[of(i)]++
		}
	}
	done := map[group]bool{}
	for _, i := range items {
		switch g := of(i); {
		case i.Detail != "" || count[g] < grouped:
			lines = append(lines, i.String())
		case !done[g]:
			done[g] = true
			lines = append(lines, fmt.Sprintf("%d × %s in %s", count[g], g.kind, g.dir))
		}
	}
	return lines
}
