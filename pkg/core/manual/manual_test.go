package manual

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/test/golden"
)

func sample() Page {
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringP("output", "o", "", "Format: `json` or text | nothing")
	flags.Bool("all", false, "All of them")
	flags.Int("nodes", 3, "How many")
	flags.Duration("wait", 2*time.Minute, "How long (default is long)")
	flags.Bool("secret-flag", false, "x")
	_ = flags.MarkHidden("secret-flag")
	return Page{
		Name: "coracle make", Short: "Make things", Usage: "coracle make [flags] NAME",
		Long:    "Make things at /etc/x.\n.dots and 'quotes' at the begin, a \\ and -- dashes.\n\n  in a list   as it is\n  -f          too",
		Example: "  # One\n  coracle make --all one\n\n  # Two, with <angles> and *stars*\n  coracle make two",
		Groups:  append(Flags(flags), Usage("Paths:\n  -d, --data-dir DIR\n        Where data is\n        kept. Default: /x.\n\n      --plain\n        Nothing\n")...),
		See:     "More is elsewhere.",
	}
}

func TestPages(t *testing.T) {
	golden.Check(t, "testdata/page.golden.md", sample().Markdown())
	golden.Check(t, "testdata/page.golden.1", sample().Roff("v1", "2026-11-21", []string{"coracle", "coracle-up"}, Extra{"Exit status", "  0  good\n  1  bad"}))
	if got := sample().File(); got != "coracle-make.1" {
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

func TestFront(t *testing.T) {
	pages, err := Front()
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 20 {
		t.Errorf("%d commands", len(pages))
	}
}
