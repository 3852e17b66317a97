package config

import "strings"

// someClasses is the binding of a list of IngressClasses.
func someClasses(field func(*Config) *[]string) binding {
	return bind(field, func(d *decoder, v *value) []string {
		for _, it := range v.items {
			if !subdomain(it.text) {
				d.add("%s: %q is not the name of an IngressClass: use small letters, digits and dashes", it.label(v.setting), it.text)
			}
		}
		return v.texts()
	}, func(names []string) string { return strings.Join(names, ",") })
}
