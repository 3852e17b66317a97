package config

import (
	"slices"
	"strings"
)

// Setting is the value of one setting with its source, for people.
type Setting struct {
	Name   string   `json:"name"`
	Group  string   `json:"group"`
	Help   string   `json:"help"`
	Values []string `json:"values"` // secrets are hidden
	// Many says that the setting is a list.
	Many bool `json:"list,omitempty"`
	// Typed says that Values is a boolean in YAML's eyes.
	Typed bool `json:"-"`
	// Set says that Values are not the default.
	Set bool `json:"set"`
	// Origin says where the value is from: "default", what it was derived from, a flag, a variable, or FILE:LINE.
	Origin string `json:"origin"`

	secret bool
}

// Inspect is Resolve, with every setting and its origin in the order of the flags. The settings are there even
// when the error is not nil.
func Inspect(role Role, args, environ []string) (Config, []Setting, error) {
	return inspect(role, args, environ, thisHost())
}

func inspect(role Role, args, environ []string, h host) (Config, []Setting, error) {
	cfg, r, err := resolve(role, args, environ, h, nil)
	return cfg, r.settings(role), err
}

// Defaults returns the settings of a role with their defaults. Settings whose default depends on the host have no value.
func Defaults(role Role) []Setting {
	r := &raw{}
	for _, s := range r.table(role) {
		s.into.reset()
	}
	return r.settings(role)
}

func (r *raw) settings(role Role) []Setting {
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
		Values: append([]string{}, s.into.texts()...), Many: s.many(), Typed: s.kind == toggle,
		Set: s.into.layer > fromCluster, Origin: s.origin(),
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
	for _, it := range s.into.items {
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
		return "default" // or an empty list in a file: both say nothing
	}
	return strings.Join(from, ", ")
}
