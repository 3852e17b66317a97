package vm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/golden"
)

// reports is the directory with a report of each machine, as it was seen last.
const reports = "testdata/reports"

// Report is what was seen on a machine.
type Report struct {
	Machine, What string
	Date, Version string
	Seconds       float64 // in all
	Slower        float64 // than here, for a loop
	Facts         map[string]string
	Steps         []Result
}

// Result is how a step ended.
type Result struct {
	Step    string
	OK      bool
	Skipped string `json:",omitempty"` // why it was not tried
	Seconds float64
}

func (r Report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// TestTable: the table in docs/machines.md is that of the reports; -update writes it.
func TestTable(t *testing.T) {
	const page, begin, end = "../../docs/machines.md", "<!-- Written by `scripts/machines` out of test/vm/testdata/reports. -->\n", "<!-- End of what is written. -->\n"
	files, err := filepath.Glob(reports + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []Report
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, r)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	golden.Check(t, page, head+begin+table(all)+end+tail)
}

// table is the reports as Markdown: a line for each machine, and then a sentence for what fails or was not tried, and for machines that were never seen.
func table(all []Report) string {
	order, tried, known := map[string]int{}, map[string][]step{}, map[string]map[string]string{}
	for i, k := range kinds() {
		order[k.name], tried[k.name], known[k.name] = i, k.all(), k.known
	}
	slices.SortFunc(all, func(a, b Report) int { return cmp.Compare(order[a.Machine], order[b.Machine]) })
	out := &strings.Builder{}
	fmt.Fprint(out, "\n| machine | kernel | slower | boot | install to Ready | boot to Ready | power cut | steps that work | took | coracle, date |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	var notes []string
	for _, r := range all {
		worked, skipped := 0, map[string][]string{} // by reason
		for _, s := range r.Steps {
			switch {
			case s.Skipped != "":
				skipped[s.Skipped] = append(skipped[s.Skipped], s.Step)
			case !s.OK:
				notes = append(notes, fmt.Sprintf("- %s: **%s fails**: %s.", r.What, s.Step, cmp.Or(known[r.Machine][s.Step], "see the test's log")))
			default:
				worked++
			}
		}
		for why, names := range skipped {
			notes = append(notes, fmt.Sprintf("- %s: not tried: %s: %s.", r.What, strings.Join(names, ", "), why))
		}
		var missing []string // because the run ended, or the step is newer
		for _, step := range tried[r.Machine] {
			if !slices.ContainsFunc(r.Steps, func(s Result) bool { return s.Step == step.name }) {
				missing = append(missing, step.name)
			}
		}
		if len(missing) > 0 {
			notes = append(notes, fmt.Sprintf("- %s: not tried: %s.", r.What, strings.Join(missing, ", ")))
		}
		cut := ""
		if n := r.Facts["acknowledged before the cut"]; n != "" {
			cut = r.Facts["lost"] + " of " + n + " writes lost"
			if cuts := r.Facts["power cuts"]; cuts != "" && cuts != "1" {
				cut += " in " + cuts + " power cuts"
			}
		}
		fmt.Fprintf(out, "| %s | %s | %.0f times | %s | %s | %s | %s | %d of %d | %s | %s, %s |\n", r.What, r.Facts["kernel"], r.Slower, r.Facts["boot"], r.Facts["install to Ready"],
			r.Facts["boot to Ready"], cut, worked, len(tried[r.Machine]), time.Duration(r.Seconds*float64(time.Second)).Round(time.Second), r.Version, r.Date)
	}
	slices.Sort(notes)
	for _, k := range kinds() {
		if !slices.ContainsFunc(all, func(r Report) bool { return r.Machine == k.name }) {
			notes = append(notes, fmt.Sprintf("- %s: **not seen**: `scripts/machines %s` tries it.", k.what, k.name))
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(notes, "\n"))
	}
	return out.String() + "\n"
}
