// Package manual writes documentation out of a tree of commands: Markdown for docs/reference.md, and pages for man.
package manual

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Page describes one command.
type Page struct {
	// Name is the command with those above it: "coracle up list".
	Name, Short, Long, Example string
	// Group is the title under which help lists the command, or that of the command above it.
	Group string
	// Usage is what one types, as in "coracle up [flags] [NAME]".
	Usage  string
	Groups []Group
	// Above is the name of the command above it, and Below are those below it.
	Above string
	Below []Page
}

// Group is some flags under a title; "" is plain flags.
type Group struct {
	Title string
	Flags []Flag
}

// Flag is one flag.
type Flag struct {
	Name  string
	Short string // one letter
	// Arg is what help calls the value; "" for a flag that has none.
	Arg  string
	Help string
}

// Describe returns the pages of a command and of all below it, in the order of help. Hidden commands are left out, and help.
func Describe(c *cobra.Command) []Page {
	p := Page{
		Name: c.CommandPath(), Short: c.Short, Long: c.Long, Example: c.Example, Group: c.GroupID, Usage: c.UseLine(), Groups: Flags(c.LocalFlags()),
	}
	if c.HasParent() {
		p.Above = c.Parent().CommandPath()
	} else {
		p.Groups = nil
	}
	var below []Page
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" {
			continue
		}
		pages := Describe(sub)
		p.Below = append(p.Below, pages[0])
		below = append(below, pages...)
	}
	for i := range below {
		below[i].Group = cmp.Or(below[i].Group, p.Group)
	}
	return append([]Page{p}, below...)
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
func Flags(flags *pflag.FlagSet) (groups []Group) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		title := strings.Join(f.Annotations[config.GroupAnnotation], "")
		if len(groups) == 0 || groups[len(groups)-1].Title != title {
			groups = append(groups, Group{Title: title})
		}
		arg, help := pflag.UnquoteUsage(f)
		if def := defaultOf(f); def != "" {
			help += " (default " + def + ")"
		}
		last := &groups[len(groups)-1]
		last.Flags = append(last.Flags, Flag{f.Name, f.Shorthand, arg, help})
	})
	return groups
}

// defaultOf is a flag's default, if it says something and the help does not.
func defaultOf(f *pflag.Flag) string {
	if strings.Contains(f.Usage, "(default") || slices.Contains([]string{"", "[]", "0", "false", "0s", "<nil>", "-1"}, f.DefValue) {
		return ""
	}
	return f.DefValue
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
