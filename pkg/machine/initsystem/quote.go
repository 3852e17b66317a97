package initsystem

import (
	"fmt"
	"slices"
	"strings"
)

// Environment is the text of a file of variables that systemd reads and a shell can source alike, sorted by name.
// Variables are NAME=VALUE; of two with one name the last counts.
func Environment(variables []string) []byte {
	values := map[string]string{}
	var names []string
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		if _, ok := values[name]; !ok {
			names = append(names, name)
		}
		values[name] = value
	}
	slices.Sort(names)
	// What both take a backslash away from, in double quotes.
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`")
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s=\"%s\"\n", name, escape.Replace(values[name]))
	}
	return []byte(b.String())
}

// systemdLine is a command line for a unit file. The program's path is not subject to variables, the arguments are.
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

// systemdWord quotes a word if it has to be.
func systemdWord(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=,@%+$", c) || c > 127
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(word) + `"`
}

// ReadEnvironment is the reverse of Environment. What has another form is left out.
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

// ShellLine is a command line for a shell.
func ShellLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = shellWord(word)
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word if it has to be.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=,@%+", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
