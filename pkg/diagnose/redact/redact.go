// Package redact takes secrets out of text that leaves the machine or is kept for long: logs, configuration, whatever
// a support bundle collects. It knows what secrets look like (the table in rules.go) and, as the last line of defence,
// the values that it was told. It imports nothing but the standard library.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Removed stands where a secret was.
const Removed = "(removed)"

// Redactor takes secrets out. The zero value knows what secrets look like. It is safe for use by several goroutines
// once it is made.
type Redactor struct {
	known *strings.Replacer
}

// New returns a redactor that also knows values. Those that are too short, or that are ordinary words, would take
// harmless text along and are left out.
func New(values ...string) *Redactor {
	all := map[string]bool{}
	for _, v := range values {
		for _, form := range forms(strings.TrimSpace(v)) {
			all[form] = true
		}
	}
	var list []string
	for form := range all {
		list = append(list, form)
	}
	// Of two that begin alike, the longer one must go as a whole.
	slices.SortFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	r := &Redactor{}
	if len(list) > 0 {
		var pairs []string
		for _, v := range list {
			pairs = append(pairs, v, Removed)
		}
		r.known = strings.NewReplacer(pairs...)
	}
	return r
}

// The longest secret that is looked for as a whole, and the shortest line of one with several lines, in bytes.
const (
	longest      = 64 << 10
	shortestLine = 16
)

// forms are the spellings in which a value may turn up.
func forms(v string) (out []string) {
	if !telling(v) || len(v) > longest || strings.HasPrefix(v, "-----BEGIN CERT") {
		return nil
	}
	out = []string{v, base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)), url.QueryEscape(v)}
	if quoted, err := json.Marshal(v); err == nil {
		out = append(out, string(quoted[1:len(quoted)-1]))
	}
	if strings.Contains(v, "\n") {
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); len(line) >= shortestLine && !strings.HasPrefix(line, "-----") {
				out = append(out, line)
			}
		}
	}
	return out
}

// telling reports whether a value is unlikely to be a word that means nothing.
func telling(v string) bool {
	digit := strings.ContainsAny(v, "0123456789")
	return len(v) >= 8 || len(v) >= 6 && digit && strings.ContainsFunc(v, func(r rune) bool { return r > '9' })
}

// String returns text without the secrets in it.
func (r *Redactor) String(text string) string {
	if r != nil && r.known != nil {
		text = r.known.Replace(text)
	}
	text = applyRules(text, true)
	if !strings.Contains(text, "\n") {
		return applyRules(text, false)
	}
	var out strings.Builder
	out.Grow(len(text))
	for line := range strings.Lines(text) {
		out.WriteString(applyRules(line, false))
	}
	return out.String()
}

func applyRules(text string, whole bool) string {
	lower := strings.ToLower(text)
	for _, rule := range rules {
		if rule.whole == whole && rule.hinted(lower) {
			text = rule.apply(text)
		}
	}
	return text
}

// Find returns the values in a document, such as a configuration file or the contents of a Secret, that the names of
// their fields call secret. They may turn up elsewhere under no name.
func Find(document string) (values []string) {
	for _, pattern := range []*regexp.Regexp{line, named} {
		for _, groups := range pattern.FindAllStringSubmatch(document, -1) {
			if !harmless(groups) {
				values = append(values, valueOf(groups))
			}
		}
	}
	for _, groups := range login.FindAllStringSubmatch(document, -1) {
		values = append(values, groups[2], passwordOf(groups[2]))
	}
	for _, groups := range yamlLogin.FindAllStringSubmatch(document, -1) {
		if password := passwordOf(groups[2]); password != "" {
			values = append(values, groups[2], password)
		}
	}
	return values
}

// Args returns a command line without the values of flags that hold secrets.
func (r *Redactor) Args(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = r.String(arg)
		if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(args[i-1], "=") && secretFlag(args[i-1]) {
			out[i] = Removed
		}
	}
	return out
}
