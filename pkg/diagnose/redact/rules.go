package redact

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// rule describes one form of secrets.
type rule struct {
	name string
	// hints are in lower case; the pattern is tried only on lines that have one of them.
	hints []string
	// hint replaces hints where that is not enough.
	hint func(lower string) bool
	// whole is true for patterns that match several lines.
	whole   bool
	pattern func() *regexp.Regexp
	// with is the replacement, in which $1 is the pattern's first group.
	with string
	// unless reports whether a match, given as the pattern's groups, is harmless and must be kept.
	unless func(groups []string) bool
}

// late compiles a pattern when it is first used: of the many processes that link this package, few use it.
func late(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// secretWords occur in the names of settings, fields and flags whose values are secrets.
const secretWords = `pass(?:word|wd|phrase)|secret|token|api[-_.]?key|access[-_.]?key|private[-_.]?key|key[-_]data|credential|client[-_]key`

var (
	// named is a field with the name of a secret and its value, in quotes or not, of YAML, JSON, JSON within a string, an
	// environment or a command line.
	named = late(`(?i)([\w.-]*(?:` + secretWords + `)[\w.-]*)(\\?["']?\s*(?:=|:\s)\s*|\\?["']\s*:\s*)(?:(\\")[^"\\]*\\"|(")(?:[^"\\\n]|\\.)*"|(')[^'\n]*'|[^\s,;&"'\\\]}\[{]+)`)
	// line is the same on a line of its own in a file: the value goes to its end.
	line = late(`(?im)^([ \t]*(?:-[ \t]+|export[ \t]+)?(?:\w[\w.-]*)?(?:` + secretWords + `)[\w.-]*)([ \t]*[:=][ \t]*)([^\s"'\[{(|>&][^\n]*?)[ \t\r]*$`)
	// login is the field for a registry's credentials in Docker's configuration. The second group is USER:PASSWORD in base64.
	login = late(`(\\?"auth\\?"\s*:\s*\\?")([^"\\]+)`)
	// yamlLogin is the same in a registries.yaml.
	yamlLogin = late(`(?m)((?:^|[{,])[ \t]*auth:[ \t]*["']?)([A-Za-z0-9+/]{8,}={0,2})`)
)

// secretHints are substrings of everything that secretWords match, in lower case.
var secretHints = []string{"pass", "secret", "token", "key", "credential"}

// rules are applied in order.
var rules = []rule{
	{
		name: "private key", hints: []string{"private key-----"}, whole: true,
		pattern: late(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`),
		with:    Removed,
	},
	{
		// The first bytes of "-----BEGIN ". Certificates are no secret.
		name: "private key in base64", hints: []string{"ls0tls1crudjti"}, whole: true,
		pattern: late(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]{16,}(?:\s+[A-Za-z0-9+/=]{40,})*`),
		with:    Removed,
		unless:  func(groups []string) bool { return onlyCertificates(groups[0]) },
	},
	{
		name: "signed web token", hints: []string{"eyj"},
		pattern: late(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
		with:    Removed,
	},
	{
		name: "join token", hints: []string{"::"},
		pattern: late(`(C1[0-9a-f]{64}::)[a-z0-9]{6}\.[a-z0-9]{16}`),
		with:    "${1}" + Removed,
	},
	{
		name: "bootstrap token", hint: bootstrapToken,
		pattern: late(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
		with:    Removed,
		unless:  func(groups []string) bool { return !strings.ContainsAny(groups[0][7:], "0123456789") },
	},
	{
		name: "bearer", hints: []string{"bearer"},
		pattern: late(`(?i)\b(bearer\s+)[A-Za-z0-9+/=._~-]{12,}`),
		with:    "${1}" + Removed,
	},
	{
		name: "authorization header", hints: []string{"authorization"},
		pattern: late(`(?i)(authorization\\?["']?\s*[:=]\s*\[?\\?["']?(?:basic|bearer|digest|negotiate)\s+)[^\s"'\],]+`),
		with:    "${1}" + Removed,
	},
	{
		name: "password in an address", hints: []string{"://"},
		pattern: late(`(://[^/\s:@"']*:)[^/\s@"']+@`),
		with:    "${1}" + Removed + "@",
	},
	{
		name: "registry login", hints: []string{`auth"`, `auth\"`},
		pattern: login,
		with:    "${1}" + Removed,
	},
	{
		name: "registry login in YAML", hints: []string{"auth:"},
		pattern: yamlLogin,
		with:    "${1}" + Removed,
		unless:  func(groups []string) bool { return passwordOf(groups[2]) == "" },
	},
	{
		name: "registry login in TOML", hints: []string{"auth"},
		pattern: late(`(?m)((?:^|[{,.])[ \t]*["']?auth["']?[ \t]*=[ \t]*["'])([^"'\n]+)`),
		with:    "${1}" + Removed,
	},
	{
		name: "line with a named value", hint: beginsWithSecret,
		pattern: line,
		with:    "${1}${2}" + Removed,
		unless:  harmless,
	},
	{
		name:    "named value",
		hints:   secretHints,
		pattern: named,
		with:    "${1}${2}${3}${4}${5}" + Removed + "${3}${4}${5}",
		unless:  harmless,
	},
}

// passwordOf returns the password in a registry's login; "" if the text is no login.
func passwordOf(login string) string {
	plain, err := base64.StdEncoding.DecodeString(login)
	if err != nil {
		return ""
	}
	_, password, _ := strings.Cut(string(plain), ":")
	return password
}

// references match the ends of names of fields that refer to a secret or describe it, but do not have its value.
var references = late(`(?i)(file|path|names?|refs?|dir|ttl|seconds|types?|count|version|audiences?|mode|namespace|uid|policy|url|usages?|expiry|expiration|timestamp|controller|signer|cleaner|issuer|strategy|ca)$`)

// onlyCertificates reports whether all PEM blocks in a text in base64 are certificates.
func onlyCertificates(text string) bool {
	const begin = "LS0tLS1CRUdJTi"
	return strings.Count(text, begin) == strings.Count(text, begin+"BDRVJU")
}

// harmless reports whether a named value is no secret, because of its name or of its form.
func harmless(groups []string) bool {
	return references().MatchString(groups[1]) || plain(valueOf(groups))
}

// path matches what is a path for sure: a key in base64 begins with a slash as well, once in 64 times.
var path = late(`^/(?:etc|var|run|usr|home|root|opt|tmp|dev|proc|sys|srv|mnt|media|data|lib)(?:/|$)`)

// plain reports whether a value is a path, a number or a keyword.
func plain(value string) bool {
	switch {
	case strings.HasPrefix(value, Removed), path().MatchString(value):
		return true
	case slices.Contains([]string{"", "true", "false", "null", "nil", "<nil>", "[]", "{}", "|", ">", "-", "files", "compat"}, value):
		return true
	}
	return len(value) < 8 && strings.Trim(value, "0123456789") == ""
}

// valueOf returns the value in a match of named, without quotes.
func valueOf(groups []string) string {
	return strings.Trim(strings.TrimPrefix(groups[0], groups[1]+groups[2]), `\"'`)
}

var flagWords = late(`(?i)^--?(t|[\w-]*(?:` + secretWords + `)[\w-]*)$`)

// secretFlag reports whether the argument after a flag is a secret.
func secretFlag(flag string) bool {
	return flagWords().MatchString(flag) && !references().MatchString(flag)
}

func (r rule) hinted(lower string) bool {
	if r.hint != nil {
		return r.hint(lower)
	}
	return slices.ContainsFunc(r.hints, func(h string) bool { return strings.Contains(lower, h) })
}

// beginsWithSecret reports whether the name at the beginning of a line may be the name of a secret.
func beginsWithSecret(lower string) bool {
	name := strings.TrimLeft(lower, " \t-")
	name = strings.TrimLeft(strings.TrimPrefix(name, "export "), " \t")
	end := strings.IndexAny(name, ":= \t\"'")
	return end > 0 && slices.ContainsFunc(secretHints, func(h string) bool { return strings.Contains(name[:end], h) })
}

// bootstrapToken reports whether a line may have a word like abcdef.0123456789abcdef. It is faster than the pattern.
func bootstrapToken(line string) bool {
	for i := 6; i+16 < len(line); i++ {
		if line[i] == '.' && allWord(line[i-6:i]) && allWord(line[i+1:i+17]) {
			return true
		}
	}
	return false
}

func allWord(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}

func (r rule) apply(text string) string {
	if r.unless == nil {
		return r.pattern().ReplaceAllString(text, r.with)
	}
	var out []byte
	end := 0
	for _, at := range r.pattern().FindAllStringSubmatchIndex(text, -1) {
		groups := make([]string, len(at)/2)
		for i := range groups {
			if at[2*i] >= 0 {
				groups[i] = text[at[2*i]:at[2*i+1]]
			}
		}
		if r.unless(groups) {
			continue
		}
		out = append(out, text[end:at[0]]...)
		out = r.pattern().ExpandString(out, r.with, text, at)
		end = at[1]
	}
	if end == 0 {
		return text
	}
	return string(append(out, text[end:]...))
}
