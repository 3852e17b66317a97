package initsystem

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Environment returns the text of a file of variables that both systemd and a shell can read, sorted by name. Variables have
// the form NAME=VALUE; of two with the same name the last one counts.
func Environment(variables []string) []byte {
	values := map[string]string{}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	// Both remove a backslash before these characters in double quotes.
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`")
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&b, "%s=\"%s\"\n", name, escape.Replace(values[name]))
	}
	return []byte(b.String())
}

// systemdLine returns a command line for a unit file. systemd expands variables in the arguments, but not in the path.
func systemdLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		word = strings.ReplaceAll(word, "%", "%%")
		if i > 0 {
			word = strings.ReplaceAll(word, "$", "$$")
		}
		words[i] = systemdWord(word)
	}
	return strings.Join(words, " ")
}

// systemdWord quotes a word if necessary.
func systemdWord(word string) string {
	if plain(strings.ReplaceAll(word, "$", "")) {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(word) + `"`
}

// variable is a line that means the same to systemd and to a shell: a value in double quotes, in single ones, or without any.
var variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=(?:"((?:[^"\\$\x60]|\\.)*)"|'([^']*)'|([^\s"'\\$\x60#;&|<>()~]*))$`)

// ReadEnvironment returns the variables of a file as Environment writes it, or as people edit it.
func ReadEnvironment(text []byte) (variables []string, err error) {
	unescape := strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`")
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := variable.FindStringSubmatch(line)
		if m == nil {
			name, _, _ := strings.Cut(line, "=") // the value may be secret
			return nil, fmt.Errorf("line %d, %q, is not understood: write NAME='value'", i+1, name)
		}
		variables = append(variables, m[1]+"="+unescape.Replace(m[2])+m[3]+m[4])
	}
	return variables, nil
}

// ShellLine returns a command line for a shell.
func ShellLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = shellWord(word)
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word if necessary.
func shellWord(word string) string {
	if plain(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// plain reports whether a word needs no quotes.
func plain(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(c rune) bool { return !alphanumeric(c) && !strings.ContainsRune("-_./:=,@%+", c) })
}

func alphanumeric(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
