package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/test/golden"
)

func sample() *cobra.Command {
	root := &cobra.Command{Use: "coracle"}
	c := &cobra.Command{
		Use: "make [flags] NAME", Short: "Make things", Run: func(*cobra.Command, []string) {},
		Long:    "Make things at /etc/x.\n.dots and 'quotes' at the begin, a \\ and -- dashes.\n\n  in a list   as it is\n  -f          too",
		Example: "# One\ncoracle make --all one\n\n# Two, with <angles> and *stars*\ncoracle make two",
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringP("output", "o", "", "Format: `json` or text | nothing")
	flags.Bool("all", false, "All of them")
	flags.Int("nodes", 3, "How many")
	flags.Duration("wait", 2*time.Minute, "How long (default is long)")
	flags.Bool("secret-flag", false, "x")
	_ = flags.MarkHidden("secret-flag")
	flags.StringP("data-dir", "d", "/x", "`DIR` where data is kept")
	flags.Bool("plain", false, "Nothing")
	for _, name := range []string{"data-dir", "plain"} {
		_ = flags.SetAnnotation(name, config.GroupAnnotation, []string{"Paths"})
	}
	c.AddCommand(&cobra.Command{Use: "more", Short: "Make more", Run: c.Run})
	root.AddCommand(c)
	return c
}

func TestPages(t *testing.T) {
	golden.Check(t, "testdata/page.golden.md", markdown(sample(), longText(sample()), flagGroups(sample())))
	golden.Check(t, "testdata/page.golden.1", roff(sample(), "v1", "2026-11-21", extraSection{"Exit status", "  0  good\n  1  bad"}))
	if got := pageName(sample()); got != "coracle-make" {
		t.Error(got)
	}
}

// TestLint has mandoc read the page.
func TestLint(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed: scripts/setup installs it")
	}
	cmd := exec.Command(mandoc, "-Tlint", "-Wwarning", "testdata/page.golden.1")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
	shown, err := exec.Command(mandoc, "-Tascii", "testdata/page.golden.1").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("\b", "").Replace(string(shown))
	for _, want := range []string{".dots and 'quotes'", "a \\ and --", "-f          too"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown:\n%s", want, text)
		}
	}
}
