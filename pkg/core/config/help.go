package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// GroupAnnotation is the annotation of a flag that holds the title under which help lists it.
const GroupAnnotation = "coracle_group"

// Flags are a role's flags in the order of help, for completion and documentation: setting them has no effect. The type of
// a value is what help calls it, FILE or DIR for paths; a value with the method Words takes these words only.
func Flags(role Role) *pflag.FlagSet {
	var r raw
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
	var r raw
	table := r.table(role)
	var b strings.Builder
	for _, group := range groups {
		title := group + ":\n"
		for _, s := range table {
			if s.group != group {
				continue
			}
			b.WriteString(title)
			title = ""
			fmt.Fprintf(&b, "  %s\n        %s\n", s.syntax(), s.describe())
		}
		if title == "" {
			b.WriteByte('\n')
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// syntax is the flag as one would type it.
func (s setting) syntax() string {
	out := "    --" + s.name
	if s.short != "" {
		out = "-" + s.short + ", --" + s.name
	}
	switch {
	case s.kind == toggle:
		return out
	case s.many():
		return out + " " + s.arg + "..."
	}
	return out + " " + s.arg
}

// describe is the help text with the default.
func (s setting) describe() string {
	switch {
	case s.note != "":
		return s.help + " (default: " + s.note + ")"
	case s.def != "" && s.kind != toggle:
		return s.help + " (default " + s.def + ")"
	}
	return s.help
}
