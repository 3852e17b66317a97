package initsystem

import (
	"fmt"
	"maps"
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

// ReadEnvironment is the reverse of Environment. It skips lines of another form.
func ReadEnvironment(text []byte) (variables []string) {
	unescape := strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`")
	for _, entry := range strings.Split(string(text), "\"\n") {
		name, value, ok := strings.Cut(entry, "=\"")
		if ok {
			variables = append(variables, name+"="+unescape.Replace(value))
		}
	}
	return variables
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
