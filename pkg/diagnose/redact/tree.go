package redact

import "fmt"

// keys match the names of secrets in configuration, also of those that have a rule of their own in text, and of the headers that a client sends.
var keys = late(`(?i)` + secretWords + `|^auth$|url-?headers?$|^headers?$`)

// Value returns a value of decoded configuration without the secrets in it: maps with texts as keys, lists, texts, numbers and truths. name is
// that of the value itself. What is in a list or a map with the name of a secret is secret too.
func (r *Redactor) Value(name string, value any) any {
	return r.value(value, keys().MatchString(name) && !references().MatchString(name))
}

func (r *Redactor) value(value any, secret bool) any {
	switch v := value.(type) {
	case nil:
		return nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, one := range v {
			// The table of a registry's credentials has the user's name too.
			out[name] = r.value(one, keys().MatchString(name) && !references().MatchString(name) && !(isMap(one) && name == "auth") || secret)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = r.value(one, secret)
		}
		return out
	case string:
		if secret && !plain(v) {
			return Removed
		}
		return r.String(v)
	}
	if secret && !plain(fmt.Sprint(value)) {
		return Removed
	}
	return value
}

func isMap(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}
