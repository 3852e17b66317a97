package verdicts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table is the verdicts as Markdown: a line for each kind of each class, and then one for each run that failed.
func Table(rows []Row) string {
	type group struct{ class, kind string }
	groups := map[group][]Row{}
	for _, r := range rows {
		g := group{r.Class, r.Kind}
		groups[g] = append(groups[g], r)
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(strings.Compare(a.class, b.class), strings.Compare(a.kind, b.kind))
	})
	out := &strings.Builder{}
	fmt.Fprint(out, "\n| class | kind | runs | good | writes acknowledged | lost | well again, median | at most | no write for, at most | p99 of /readyz, at most | ended as | commits | dates |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	total, good, acknowledged, lost := 0, 0, 0, 0
	var failed []string
	for _, g := range order {
		s := summarize(groups[g])
		fmt.Fprintf(out, "| %s | %s | %d | %d | %d | %d | %.1f s | %.1f s | %s | %s | %s | %s | %s |\n", g.class, g.kind, s.runs, s.good, s.acknowledged, s.lost,
			s.median, s.most, s.gap, s.ready, s.seen, s.commits, s.dates)
		total, good, acknowledged, lost = total+s.runs, good+s.good, acknowledged+s.acknowledged, lost+s.lost
		failed = append(failed, s.failed...)
	}
	fmt.Fprintf(out, "\nTogether %d runs, %d of them good; %d of %d acknowledged writes were lost.\n", total, good, lost, acknowledged)
	for _, f := range failed {
		fmt.Fprintf(out, "- failed: %s\n", f)
	}
	return out.String() + "\n"
}

// summary is what the runs of a kind have in common.
type summary struct {
	runs, good, acknowledged, lost int
	median, most                   float64 // seconds
	gap, ready                     string  // the longest, where it is measured
	seen, commits, dates           string
	failed                         []string
}

func summarize(rows []Row) (s summary) {
	var seconds []float64
	gap, ready := 0.0, 0.0
	seen := map[string]int{}
	commits, dates := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		s.runs, s.acknowledged, s.lost = s.runs+1, s.acknowledged+r.Acknowledged, s.lost+r.Lost
		commits[r.Commit], dates[r.Date] = true, true
		gap, ready = max(gap, r.Gap), max(ready, r.Ready)
		if !r.OK {
			s.failed = append(s.failed, fmt.Sprintf("%s/%s/%d at %s", r.Class, r.Kind, r.Seed, r.Commit))
			continue
		}
		s.good++
		seconds = append(seconds, r.Seconds)
		if r.Seen != "" {
			seen[r.Seen]++
		}
	}
	slices.Sort(seconds)
	if n := len(seconds); n > 0 {
		s.median, s.most = seconds[n/2], seconds[n-1]
	}
	if gap > 0 {
		s.gap = fmt.Sprintf("%.1f s", gap)
	}
	if ready > 0 {
		s.ready = fmt.Sprintf("%.2f s", ready)
	}
	var ends []string
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		ends = append(ends, fmt.Sprintf("%d %s", seen[what], what))
	}
	s.seen = strings.Join(ends, ", ")
	s.commits = strings.Join(slices.Sorted(maps.Keys(commits)), ", ")
	s.dates = strings.Join(slices.Sorted(maps.Keys(dates)), ", ")
	return s
}
