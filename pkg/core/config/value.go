package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// layer is the kind of a value's source. A later one overrides an earlier one.
type layer int

const (
	fromDefault layer = iota
	derived           // from this host or from other settings
	fromCluster
	fromFile
	fromEnv
	fromFlag
)

// origin is the place of a value.
type origin struct {
	layer layer
	where string // FILE:LINE of a file, the name of a variable
}

// item is a text with its origin.
type item struct {
	text   string
	origin origin
}

// label returns the name of an item for an error, which shows its place.
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

// value is the unparsed text of a setting. It implements pflag.Value.
type value struct {
	setting setting
	items   []item
	layer   layer // of items
}

// split splits text into items by the setting's kind.
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

// put replaces the items.
func (v *value) put(items []item, from layer) { v.items, v.layer = items, from }

// Set is called by pflag for each occurrence on the command line. The first one replaces items of other layers,
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

// String returns the value as a user types it.
func (v *value) String() string {
	parts := make([]string, len(v.items))
	for i, it := range v.items {
		parts[i] = it.text
	}
	return strings.Join(parts, ",")
}

// Type returns the name of the value in help.
func (v *value) Type() string {
	if v.setting.many() {
		return v.setting.arg + "..."
	}
	return v.setting.arg
}

// Words returns all possible values, if they are few.
func (v *value) Words() []string { return v.setting.words }

func (s setting) many() bool { return s.kind == list || s.kind == lines }

// one returns the item of a setting that is not a list, an empty one if there is none.
func (v *value) one() item {
	if len(v.items) == 0 {
		return item{}
	}
	return v.items[len(v.items)-1]
}

// label returns the name of the setting for an error, with the place of its first item.
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

// binding connects a setting with the field of Config that it sets.
type binding struct {
	// decode sets the field. It is nil for a setting that is decoded together with others, in Config's decoder.
	decode func(*decoder, *value, *Config)
	// text returns the field as a user types it, for settings that machines share.
	text func(Config) string
}

// bind returns the binding of a field that depends on no other setting.
func bind[T any](field func(*Config) *T, decode func(*decoder, *value) T, text func(T) string) binding {
	return binding{
		decode: func(d *decoder, v *value, c *Config) { *field(c) = decode(d, v) },
		text:   func(c Config) string { return text(*field(&c)) },
	}
}

// Bindings for the types of fields.

func aBool(field func(*Config) *bool) binding {
	return bind(field, (*decoder).toggle, strconv.FormatBool)
}

func aDuration(field func(*Config) *time.Duration) binding {
	return bind(field, (*decoder).seconds, time.Duration.String)
}

func aLife(field func(*Config) *time.Duration) binding {
	return bind(field, (*decoder).life, time.Duration.String)
}

func aText(field func(*Config) *string) binding {
	return bind(field, func(_ *decoder, v *value) string { return v.one().text }, func(s string) string { return s })
}

func aFile(field func(*Config) *string) binding {
	return bind(field, (*decoder).file, func(s string) string { return s })
}

func aLaterFile(field func(*Config) *string) binding {
	return bind(field, (*decoder).laterFile, func(s string) string { return s })
}

func aList(field func(*Config) *[]string) binding {
	return bind(field, func(_ *decoder, v *value) []string { return v.texts() }, func(s []string) string { return strings.Join(s, ",") })
}

// decodedAs returns the binding of a field that is decoded together with others.
func decodedAs(text func(Config) string) binding { return binding{text: text} }

// joined returns a list as a user types it.
func joined[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, ",")
}
