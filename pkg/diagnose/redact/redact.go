// Package redact removes secrets from text that leaves the machine or is kept for long, such as logs, configuration and support
// bundles. It recognises secrets by their form (the table in rules.go), and known values wherever they are. It imports only the
// standard library.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Removed replaces a secret.
const Removed = "(removed)"

// Redactor removes secrets. The zero value recognises secrets by their form only. It is safe for use by several goroutines.
type Redactor struct {
	known *strings.Replacer
}

// New returns a redactor that also removes the given values, except values that are so short or ordinary that harmless text
// would be removed too.
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
	// Where one value begins with another, the longer one must be replaced as a whole.
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

// The longest value that is looked for as a whole, and the shortest line of a value with several lines, in bytes.
const (
	longest      = 64 << 10
	shortestLine = 16
)

// forms returns the encodings in which a value may occur.
func forms(v string) (out []string) {
	if !specific(v) || len(v) > longest || strings.HasPrefix(v, "-----BEGIN CERT") {
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

// specific reports whether a value is unlikely to be an ordinary word.
func specific(v string) bool {
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

// Find returns the values of fields with the names of secrets in a document, such as a configuration file or the content of a
// Secret, so that they can be removed where they occur without the name.
func Find(document string) (values []string) {
	for _, pattern := range []*regexp.Regexp{line(), named()} {
		for _, groups := range pattern.FindAllStringSubmatch(document, -1) {
			if !harmless(groups) {
				values = append(values, valueOf(groups))
			}
		}
	}
	for _, groups := range login().FindAllStringSubmatch(document, -1) {
		values = append(values, groups[2], passwordOf(groups[2]))
	}
	for _, groups := range yamlLogin().FindAllStringSubmatch(document, -1) {
		if password := passwordOf(groups[2]); password != "" {
			values = append(values, groups[2], password)
		}
	}
	return values
}

// ordinary are keys of Secrets whose values are not secret, and so common that they would be removed from everything.
var ordinary = []string{"ca.crt", "tls.crt", "namespace", "username", "user", "host", "port", "database", "dbname", "name", "description",
	"expiration", "auth-extra-groups", "type", "token-id"}

// SecretValues returns the values of a Secret's data that are secret, and those of the documents in it.
func SecretValues(data map[string][]byte) (values []string) {
	for key, value := range data {
		if slices.Contains(ordinary, key) || strings.HasPrefix(key, "usage-bootstrap-") {
			continue
		}
		values = append(values, string(value))
		values = append(values, Find(string(value))...)
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
