package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/manual"
	"github.com/coracle-dev/coracle/test/golden"
)

// reference is docs/reference.md.
func reference(t *testing.T) string {
	t.Helper()
	head, err := os.ReadFile("testdata/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.Write(head)
	fmt.Fprintf(&b, "## Exit codes\n\n```\n%s```\n\n`coracle help exit-codes` has what is special to single commands.\n", exitText())
	pages := pagesOf(root(nil))
	group := ""
	b.WriteString("\n## Commands\n")
	for _, p := range pages {
		if p.Group == "" {
			p.Group = group
		}
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "\n%s:\n\n", group)
		}
		depth := strings.Repeat("  ", strings.Count(p.Name, " ")-1)
		fmt.Fprintf(&b, "%s- [%s](#%s): %s\n", depth, p.Name, strings.ReplaceAll(p.Name, " ", "-"), p.Short)
	}
	for _, p := range pages {
		if p.Name == "coracle server" || p.Name == "coracle agent" {
			p.Groups, p.See = nil, "Its flags are in [configuration](configuration.md)."
		}
		b.WriteString("\n" + p.Markdown())
	}
	return b.String()
}

func TestReference(t *testing.T) {
	golden.Check(t, "../../docs/reference.md", reference(t))
}

// TestEveryCommandHasAPage: the front's table and the tree of core name the same commands, and each can be read.
func TestEveryCommandHasAPage(t *testing.T) {
	pages := pagesOf(root(nil))
	have := map[string]manual.Page{}
	for _, p := range pages {
		if p.Short == "" || p.Usage == "" {
			t.Errorf("%s says nothing about itself", p.Name)
		}
		have[p.Name] = p
	}
	front, err := manual.Front()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range front {
		if _, ok := have[p.Name]; !ok && p.Name != "coracle help" {
			t.Errorf("%s has no page", p.Name)
		}
	}
	for _, c := range commands() {
		if _, ok := have["coracle "+c.Name()]; !ok {
			t.Errorf("the front's table lacks %s", c.Name())
		}
	}
}

// TestManPages has mandoc read every page.
func TestManPages(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed: scripts/setup installs it")
	}
	dir := t.TempDir()
	pages := manPages(root(nil))
	if err := writePages(dir, pages); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(dir + "/*.1")
	if err != nil || len(files) != len(pages) || len(files) < 30 {
		t.Fatalf("%d files for %d pages, %v", len(files), len(pages), err)
	}
	out, err := exec.Command(mandoc, append([]string{"-Tlint", "-Wwarning"}, files...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
