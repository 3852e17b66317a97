package logs

import "strings"

// Colour puts colour to a line that Text wrote without. Any other line is left as it is.
func Colour(s string) string {
	line, ok := Parse(s)
	if !ok || strings.HasPrefix(s, "{") {
		return s
	}
	name := strings.TrimRight(levelNames[line.Level], " ")
	return strings.Replace(s, " "+name, " \x1b["+colourOf(line.Level)+"m"+name+"\x1b[0m", 1)
}
