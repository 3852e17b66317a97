package addons

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/golden"
)

// TestNames writes the names that --disable knows to the list of package config, which links no Kubernetes.
func TestNames(t *testing.T) {
	var names []string
	for _, a := range All() {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("two add-ons have the same name: %q", names)
	}
	golden.Check(t, "../core/config/addons.txt", strings.Join(names, "\n")+"\n")
}

// TestDocumented: docs/addons.md has a row for each add-on.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/addons.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range All() {
		if !strings.Contains(string(data), "\n| `"+a.Name+"` |") {
			t.Errorf("docs/addons.md has no row for %s", a.Name)
		}
		if a.Report.Judge != nil && a.About == "" {
			t.Errorf("%s has a probe, and nothing says what it looks at", a.Name)
		}
	}
}

func TestReportsHaveTheirOwnKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reports() {
		if seen[r.Key] || r.Title == "" {
			t.Errorf("report %q (%q) is there twice, or has no title", r.Key, r.Title)
		}
		seen[r.Key] = true
	}
}
