// Package manual writes documentation out of the tables that commands are made of: Markdown for docs/reference.md, and
// pages for man. The commands' own help is made of the same tables.
package manual

import (
	"cmp"
	_ "embed" // for front.json
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Page describes one command.
type Page struct {
	// Name is the command with those above it: "coracle up list".
	Name  string `json:"name"`
	Short string `json:"short"`
	// Group is the title under which help lists it; "" for a command below another.
	Group   string `json:"group,omitempty"`
	Long    string `json:"long,omitempty"`
	Example string `json:"example,omitempty"`
	// Usage is what one types, as in "coracle up [NAME] [flags]".
	Usage  string  `json:"usage"`
	Groups []Group `json:"flags,omitempty"`
	// See points to where the rest stands, if flags are described elsewhere.
	See string `json:"see,omitempty"`
}

// front.json is written and checked by the tests of cmd/coracle, whose commands nobody can import.
//
//go:embed front.json
var front []byte

// Front describes the commands that the front runs, those below them included. Their flags are complete but for server
// and agent, whose settings package config has.
func Front() ([]Page, error) {
	var pages []Page
	if err := json.Unmarshal(front, &pages); err != nil {
		return nil, fmt.Errorf("reading what the front's commands are: %w", err)
	}
	return pages, nil
}

// Group is some flags under a title; "" is plain flags.
type Group struct {
	Title string `json:"title,omitempty"`
	Flags []Flag `json:"flags"`
}

// Flag is one flag.
type Flag struct {
	Name  string `json:"name"`
	Short string `json:"short,omitempty"` // one letter
	// Arg is what help calls the value; "" for a flag that has none.
	Arg  string `json:"arg,omitempty"`
	Help string `json:"help"`
}

// Syntax is the flag as one would type it: "-n, --nodes int".
func (f Flag) Syntax() string {
	out := "--" + f.Name
	if f.Short != "" {
		out = "-" + f.Short + ", " + out
	}
	if f.Arg != "" {
		out += " " + f.Arg
	}
	return out
}

// Flags describes a set of flags, in its order. Hidden ones are left out.
func Flags(flags *pflag.FlagSet) []Group {
	var g Group
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		arg, help := pflag.UnquoteUsage(f)
		if def := defaultOf(f); def != "" {
			help += " (default " + def + ")"
		}
		g.Flags = append(g.Flags, Flag{f.Name, f.Shorthand, arg, help})
	})
	if len(g.Flags) == 0 {
		return nil
	}
	return []Group{g}
}

// defaultOf is a flag's default, if it says something and the help does not.
func defaultOf(f *pflag.Flag) string {
	if strings.Contains(f.Usage, "(default") || slices.Contains([]string{"", "[]", "0", "false", "0s", "<nil>", "-1"}, f.DefValue) {
		return ""
	}
	return f.DefValue
}

// Usage reads the flags out of a help text that has titles at the begin of lines, flags behind two blanks, and what
// they mean behind eight or on the same line. Anything else is left out.
func Usage(text string) (groups []Group) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
		case !strings.HasPrefix(line, " "):
			groups = append(groups, Group{Title: strings.TrimSuffix(line, ":")})
		case len(groups) == 0:
			groups = append(groups, Group{})
			fallthrough
		default:
			last := &groups[len(groups)-1]
			if strings.HasPrefix(strings.TrimSpace(line), "-") {
				last.Flags = append(last.Flags, parseFlag(line))
			} else if n := len(last.Flags); n > 0 && strings.HasPrefix(line, "        ") {
				last.Flags[n-1].Help = strings.TrimSpace(last.Flags[n-1].Help + " " + strings.TrimSpace(line))
			}
		}
	}
	return groups
}

// parseFlag reads "-n, --nodes INT", of which only the name must be there. What follows after two blanks is help.
func parseFlag(line string) (f Flag) {
	syntax, help, _ := strings.Cut(strings.TrimSpace(line), "  ")
	f.Help = strings.TrimSpace(help)
	if short, rest, both := strings.Cut(syntax, ", "); both {
		f.Short, syntax = strings.TrimPrefix(short, "-"), rest
	}
	name, arg, _ := strings.Cut(strings.TrimPrefix(syntax, "--"), " ")
	if n, a, given := strings.Cut(name, "="); given {
		name, arg = n, a
	}
	f.Name, f.Arg = name, arg
	return f
}

// text is what a page says at length.
func (p Page) text() string { return cmp.Or(strings.TrimSpace(p.Long), p.Short+".") }

// example is the examples without a common indent.
func (p Page) example() string {
	lines := strings.Split(strings.Trim(p.Example, "\n"), "\n")
	indented := !slices.ContainsFunc(lines, func(l string) bool { return l != "" && !strings.HasPrefix(l, "  ") })
	for i := range lines {
		if indented {
			lines[i] = strings.TrimPrefix(lines[i], "  ")
		}
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
