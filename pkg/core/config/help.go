package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Flags are a role's flags for shells to complete, with the words that each takes where those are few. The type of
// a flag's value is FILE or DIR if it is one. Setting them has no effect.
func Flags(role Role) (flags *pflag.FlagSet, words map[string][]string) {
	var r raw
	table := r.table(role)
	words = map[string][]string{}
	for _, s := range table {
		words[s.name] = s.words
	}
	return flagSet(role, table), words
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
