package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front/command"
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
	var codes strings.Builder
	exitcode.List(&codes)
	fmt.Fprintf(&b, "## Exit codes\n\n```\n%s```\n\n`coracle help exit-codes` has what is special to single commands.\n", codes.String())
	pages := below(root(nil))
	group := ""
	b.WriteString("\n## Commands\n")
	for _, p := range pages {
		if p.GroupID != "" && p.GroupID != group {
			group = p.GroupID
			fmt.Fprintf(&b, "\n%s:\n\n", group)
		}
		depth := strings.Repeat("  ", strings.Count(p.CommandPath(), " ")-1)
		fmt.Fprintf(&b, "%s- [%s](#%s): %s\n", depth, p.CommandPath(), pageName(p), p.Short)
	}
	for _, p := range pages {
		text, groups := longText(p), flagGroups(p)
		if p.Name() == "server" || p.Name() == "agent" {
			text, groups = text+"\n\nIts flags are in [configuration](configuration.md).", nil
		}
		b.WriteString("\n" + markdown(p, text, groups))
	}
	return b.String()
}

func TestReference(t *testing.T) {
	golden.Check(t, "../../docs/reference.md", reference(t))
}

// TestEveryCommandHasAPage: the commands that run here are those that the front delegates, and each says what it is.
func TestEveryCommandHasAPage(t *testing.T) {
	for _, p := range below(root(nil)) {
		if p.Short == "" || p.Parent() == p.Root() && p.GroupID == "" {
			t.Errorf("%s says nothing about itself", p.CommandPath())
		}
	}
	tools := []string{"kubectl", "crictl", "ctr"}
	for _, c := range command.Tree(nil).Commands() {
		if c.DisableFlagParsing && !c.HasLocalFlags() != (slices.Contains(tools, c.Name()) || runsHere(c.Name())) {
			t.Errorf("the front delegates %s, and it does not run here", c.Name())
		}
	}
	for _, c := range commands() {
		if found, _, err := command.Tree(nil).Find([]string{c.Name()}); err != nil || !found.DisableFlagParsing {
			t.Errorf("the front does not delegate %s", c.Name())
		}
	}
}

func runsHere(name string) bool {
	return slices.ContainsFunc(commands(), func(c *cobra.Command) bool { return c.Name() == name })
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
