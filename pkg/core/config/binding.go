package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// binding connects a setting with the field of Config that it sets.
type binding struct {
	// decode sets the field. It is nil for a setting that is decoded together with others, in Config's decoder.
	decode func(*decoder, *value, *Config)
	// text is the field as one would type it, for settings that machines share.
	text func(Config) string
}

// bind makes the binding of a field that depends on no other setting.
func bind[T any](field func(*Config) *T, decode func(*decoder, *value) T, text func(T) string) binding {
	return binding{
		decode: func(d *decoder, v *value, c *Config) { *field(c) = decode(d, v) },
		text:   func(c Config) string { return text(*field(&c)) },
	}
}

// Bindings of one kind of field each.

func aBool(field func(*Config) *bool) binding {
	return bind(field, (*decoder).toggle, strconv.FormatBool)
}

func aDuration(field func(*Config) *time.Duration) binding {
	return bind(field, (*decoder).seconds, time.Duration.String)
}

func aText(field func(*Config) *string) binding {
	return bind(field, func(_ *decoder, v *value) string { return v.one().text }, func(s string) string { return s })
}

func aFile(field func(*Config) *string) binding {
	return bind(field, (*decoder).file, func(s string) string { return s })
}

func aList(field func(*Config) *[]string) binding {
	return bind(field, func(_ *decoder, v *value) []string { return v.texts() }, func(s []string) string { return strings.Join(s, ",") })
}

// decodedAs is the binding of a field that is decoded together with others.
func decodedAs(text func(Config) string) binding { return binding{text: text} }

// joined is a list as one would type it.
func joined[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, ",")
}

// bound completes rows of the table: each has its value, which is in raw if other settings look at it.
func (r *raw) bound(rows []setting) []setting {
	if r.values == nil {
		r.values = map[string]*value{}
	}
	for i := range rows {
		if rows[i].into == nil {
			if r.values[rows[i].name] == nil {
				r.values[rows[i].name] = &value{}
			}
			rows[i].into = r.values[rows[i].name]
		}
	}
	return rows
}
