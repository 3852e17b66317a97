package command

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/manual"
	"github.com/coracle-dev/coracle/test/golden"
)

// pages describes the front's commands, by asking each for its help.
func pages(t *testing.T) (out []manual.Page) {
	t.Helper()
	t.Setenv("CORACLE_DATA_DIR", "")
	t.Setenv("CORACLE_RUN_DIR", "")
	for _, c := range append(commands(), subcommands()...) {
		page := manual.Page{Name: "coracle " + c.name, Short: c.short, Group: c.group, Long: c.long, Example: strings.Trim(c.example, "\n"), Usage: synopsis(c.name)}
		out = append(out, page)
		if c.run == nil && !strings.Contains(c.name, " ") || c.name == "help" {
			continue // coracle-core knows more of it
		}
		page = out[len(out)-1]
		var help *helpWanted
		if err := dispatch("coracle", append(strings.Fields(c.name), "--help")); !errors.As(err, &help) {
			t.Fatalf("%s: no help but %v", c.name, err)
		}
		switch {
		case help.command != c.name:
			t.Errorf("%s has the help of %s", c.name, help.command)
		case help.flags != nil:
			page.Groups = manual.Flags(help.flags)
		case c.name != "server" && c.name != "agent":
			page.Groups = manual.Usage(help.usage)
		}
		out[len(out)-1] = page
	}
	return out
}

// TestPages keeps the description of the front's commands that documentation and completion are made of.
func TestPages(t *testing.T) {
	data, err := json.MarshalIndent(pages(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "../../core/manual/front.json", string(data)+"\n")
}
