package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// GroupAnnotation is the annotation of a flag that holds the title under which help lists it.
const GroupAnnotation = "coracle_group"

// Flags returns a role's flags in the order of help, for completion and documentation: setting them has no effect. The type of
// a value is its name in help, FILE or DIR for paths. A value with the method Words takes only these words.
func Flags(role Role) *pflag.FlagSet {
	r := newRaw()
	table := r.table(role)
	all, out := flagSet(role, table), pflag.NewFlagSet("coracle "+string(role), pflag.ContinueOnError)
	out.SortFlags = false
	for _, group := range groups {
		for _, s := range table {
			if s.group == group {
				f := all.Lookup(s.name)
				f.Usage, f.Annotations = s.describe(), map[string][]string{GroupAnnotation: {group}}
				out.AddFlag(f)
			}
		}
	}
	return out
}

// Usage lists every flag of a role by groups, for the end of a help text.
func Usage(role Role) string {
	var b strings.Builder
	group := ""
	Flags(role).VisitAll(func(f *pflag.Flag) {
		if g := f.Annotations[GroupAnnotation][0]; g != group {
			b.WriteString(strings.Repeat("\n", min(len(group), 1)) + g + ":\n")
			group = g
		}
		indent := "  "
		if f.Shorthand == "" {
			indent = "      "
		}
		fmt.Fprintf(&b, "%s%s\n        %s\n", indent, FlagSyntax(f), f.Usage)
	})
	return b.String()
}

// FlagSyntax returns a flag as a user types it: "-n, --nodes int".
func FlagSyntax(f *pflag.Flag) string {
	out := "--" + f.Name
	if f.Shorthand != "" {
		out = "-" + f.Shorthand + ", " + out
	}
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		out += " " + value
	}
	return out
}

// describe returns the help text with the default.
func (s setting) describe() string {
	switch {
	case s.note != "":
		return s.help + " (default: " + s.note + ")"
	case s.def != "" && s.kind != toggle:
		return s.help + " (default " + s.def + ")"
	}
	return s.help
}

// Setting is the value of a setting with its origin, for output.
type Setting struct {
	Name   string   `json:"name"`
	Group  string   `json:"group"`
	Help   string   `json:"help"`
	Values []string `json:"values"` // secrets are hidden
	// Many is true for a list.
	Many bool `json:"list,omitempty"`
	// Typed is true for a boolean.
	Typed bool `json:"-"`
	// Set is true if Values are not the default.
	Set bool `json:"set"`
	// Origin is the source of the value: "default", what it was derived from, a flag, a variable, or FILE:LINE.
	Origin string `json:"origin"`

	secret bool
}

// Inspect is Resolve that also returns every setting with its origin, in the order of the flags. It returns the settings also
// with an error.
func Inspect(role Role, args, environ []string) (Config, []Setting, error) {
	return inspect(role, args, environ, thisHost())
}

func inspect(role Role, args, environ []string, h host) (Config, []Setting, error) {
	cfg, r, err := resolve(role, args, environ, h, nil)
	return cfg, r.settings(role), err
}

// Defaults returns the settings of a role with their defaults. Settings whose default depends on the host have no value.
func Defaults(role Role) []Setting {
	return newRaw().settings(role)
}

func (r raw) settings(role Role) []Setting {
	var out []Setting
	table := r.table(role)
	for _, group := range groups {
		for _, s := range table {
			if s.group == group {
				out = append(out, s.shown())
			}
		}
	}
	return out
}

func (s setting) shown() Setting {
	out := Setting{
		Name: s.name, Group: s.group, Help: s.help,
		Values: append([]string{}, s.collected.texts()...), Many: s.many(), Typed: s.kind == toggle,
		Set: s.collected.layer > fromCluster, Origin: s.origin(),
	}
	if s.secret {
		out.secret = true
		for i := range out.Values {
			out.Values[i] = "(hidden)"
		}
	}
	return out
}

// origin describes the source of the value.
func (s setting) origin() string {
	var from []string
	for _, it := range s.collected.items {
		where := it.origin.where
		switch it.origin.layer {
		case fromDefault:
			where = "default"
		case derived:
			where = "default: " + where
		case fromFlag:
			where = "--" + s.name
		}
		if !slices.Contains(from, where) {
			from = append(from, where)
		}
	}
	if len(from) == 0 && s.note != "" {
		return "default: " + s.note
	}
	if len(from) == 0 {
		return "default" // or an empty list in a file
	}
	return strings.Join(from, ", ")
}
