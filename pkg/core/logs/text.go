package logs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
)

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// Text formats an entry as one line: time, level, component, message, then the fields:
//
//	2026-11-21T10:44:00.123Z INFO  kubelet: ready took=12ms
type Text struct{ Colour bool }

// levelNames have one width, so that messages line up.
var levelNames = map[logrus.Level]string{
	logrus.PanicLevel: "PANIC", logrus.FatalLevel: "FATAL", logrus.ErrorLevel: "ERROR",
	logrus.WarnLevel: "WARN", logrus.InfoLevel: "INFO", logrus.DebugLevel: "DEBUG", logrus.TraceLevel: "TRACE",
}

// Colours of the terminal, as SGR parameters.
const (
	red    = "31"
	yellow = "33"
	cyan   = "36"
	grey   = "90"
)

// colourOf is how a level is shown on a terminal.
func colourOf(level logrus.Level) string {
	switch {
	case level <= logrus.ErrorLevel:
		return red
	case level == logrus.WarnLevel:
		return yellow
	case level == logrus.InfoLevel:
		return cyan
	}
	return grey
}

// Format implements logrus.Formatter.
func (t Text) Format(e *logrus.Entry) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(e.Time.UTC().Format(timeFormat))
	b.WriteByte(' ')
	name := fmt.Sprintf("%-5s", levelNames[e.Level])
	if t.Colour {
		name = "\x1b[" + colourOf(e.Level) + "m" + name + "\x1b[0m"
	}
	b.WriteString(name)
	b.WriteByte(' ')
	if component, ok := e.Data[Component].(string); ok {
		b.WriteString(component + ": ")
	}
	b.WriteString(oneLine(e.Message))
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		if key != Component {
			b.WriteString(" " + key + "=" + quote(fmt.Sprint(e.Data[key])))
		}
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// oneLine escapes newlines, so that a message cannot forge a further entry.
func oneLine(s string) string {
	s = strings.TrimRight(s, "\n")
	if !strings.ContainsAny(s, "\n\r") {
		return s
	}
	return strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\r", `\r`).Replace(s)
}

// quote quotes a field's value if it is not one word.
func quote(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' }) {
		return strconv.Quote(s)
	}
	return s
}

// Colour adds colour to a line that Text wrote without. It returns any other line unchanged.
func Colour(s string) string {
	line, ok := Parse(s)
	if !ok || strings.HasPrefix(s, "{") {
		return s
	}
	name := strings.TrimRight(levelNames[line.Level], " ")
	return strings.Replace(s, " "+name, " \x1b["+colourOf(line.Level)+"m"+name+"\x1b[0m", 1)
}
