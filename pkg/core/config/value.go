package config

import (
	"fmt"
	"strconv"
	"strings"
)

// layer says which kind of source a value came from. A later one wins.
type layer int

const (
	fromDefault layer = iota
	derived           // from this host or from other settings
	fromCluster
	fromFile
	fromEnv
	fromFlag
)

// origin is where a value was written.
type origin struct {
	layer layer
	where string // FILE:LINE of a file, the name of a variable
}

// item is one piece of text with where it was written.
type item struct {
	text   string
	origin origin
}

// label names an item in an error, the way its author would look for it.
func (i item) label(s setting) string {
	switch i.origin.layer {
	case fromCluster:
		return "the cluster's " + s.name
	case fromFile:
		return i.origin.where + ": " + s.name
	case fromEnv:
		return i.origin.where
	}
	return "--" + s.name
}

// value is a setting's text, before anything is parsed. It is also what pflag sets.
type value struct {
	setting setting
	items   []item
	layer   layer // the strongest layer that has spoken
}

// reset makes v what the default says.
func (v *value) reset() {
	v.items, v.layer = nil, fromDefault
	if v.setting.def != "" {
		v.items = v.setting.split(v.setting.def, origin{})
	}
}

// split turns text into items by the setting's kind.
func (s setting) split(text string, from origin) []item {
	if s.kind != list {
		return []item{{strings.TrimSpace(text), from}}
	}
	// A comma separates, whether the items come from a flag, a variable, or one string of a YAML list.
	var items []item
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			items = append(items, item{part, from})
		}
	}
	return items
}

// put replaces the items by those of a layer.
func (v *value) put(items []item, from layer) { v.items, v.layer = items, from }

// Set is called by pflag for each occurrence on the command line. The first one replaces what weaker layers said,
// later ones add to a list.
func (v *value) Set(text string) error {
	if v.setting.kind == toggle {
		if _, err := strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
	}
	items := v.setting.split(text, origin{layer: fromFlag})
	if v.layer == fromFlag && v.setting.many() {
		items = append(v.items, items...)
	}
	v.put(items, fromFlag)
	return nil
}

// String is the value as one would type it.
func (v *value) String() string {
	parts := make([]string, len(v.items))
	for i, it := range v.items {
		parts[i] = it.text
	}
	return strings.Join(parts, ",")
}

// Type is what pflag's help calls the value.
func (v *value) Type() string {
	if v.setting.many() {
		return v.setting.arg + "..."
	}
	return v.setting.arg
}

// Words are all that the value can be, if they are few.
func (v *value) Words() []string { return v.setting.words }

func (s setting) many() bool { return s.kind == list || s.kind == lines }

// one returns the single item of a setting that is not a list; its text is empty if nothing was said.
func (v *value) one() item {
	if len(v.items) == 0 {
		return item{}
	}
	return v.items[len(v.items)-1]
}

// label names the setting in an error, by where its first item was written.
func (v *value) label() string {
	if len(v.items) == 0 {
		return "--" + v.setting.name
	}
	return v.items[0].label(v.setting)
}

// texts returns the items' text.
func (v *value) texts() []string {
	var out []string
	for _, it := range v.items {
		out = append(out, it.text)
	}
	return out
}
