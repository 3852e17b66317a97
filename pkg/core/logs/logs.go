// Package logs configures logrus, which writes all log lines. Lines have a field "component", and each component can have a
// level of its own. A line is text or JSON. Parse reads both, so that the front can show the last error of a child process.
package logs

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Line is a parsed log line. The Message of a text line includes its fields.
type Line struct {
	Time      time.Time
	Level     logrus.Level
	Component string
	Message   string
}

// Parse parses a line of Text without colour, or of the JSON format. ok is false for any other line.
func Parse(s string) (line Line, ok bool) {
	if strings.HasPrefix(s, "{") {
		return parseJSON(s)
	}
	stamp, rest, found := strings.Cut(s, " ")
	if !found {
		return Line{}, false
	}
	var err error
	if line.Time, err = time.Parse(timeFormat, stamp); err != nil {
		return Line{}, false
	}
	level, rest, _ := strings.Cut(rest, " ")
	if line.Level, err = logrus.ParseLevel(level); err != nil {
		return Line{}, false
	}
	line.Message = strings.TrimLeft(rest, " ")
	if component, message, found := strings.Cut(line.Message, ": "); found && isName(component) {
		line.Component, line.Message = component, message
	}
	return line, true
}

func parseJSON(s string) (Line, bool) {
	var in struct {
		Time      time.Time `json:"time"`
		Level     string    `json:"level"`
		Message   string    `json:"msg"`
		Component string    `json:"component"`
		Error     string    `json:"error"`
	}
	if json.Unmarshal([]byte(s), &in) != nil {
		return Line{}, false
	}
	level, err := logrus.ParseLevel(in.Level)
	if err != nil {
		return Line{}, false
	}
	if in.Error != "" {
		in.Message += " error=" + quote(in.Error)
	}
	return Line{Time: in.Time, Level: level, Component: in.Component, Message: in.Message}, true
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-')
	})
}

// Alarming reports whether a line is an error, or the first line of a crash.
func Alarming(s string) bool {
	line, ok := Parse(s)
	return ok && line.Level <= logrus.ErrorLevel || crash(s)
}

// crash reports whether a line is the first one of a crash of the Go runtime, before the stacks.
func crash(s string) bool {
	return strings.HasPrefix(s, "panic: ") || strings.HasPrefix(s, "fatal error: ")
}

// LastError finds in the lines of a program the best description of why it ended: the last error that it
// logged, the panic or fatal error of the Go runtime, or else its last line.
type LastError struct{ last, worst string }

// Line adds the next line.
func (l *LastError) Line(s string) {
	if strings.TrimSpace(s) == "" {
		return
	}
	line, ok := Parse(s)
	switch {
	case ok && line.Level <= logrus.ErrorLevel:
		l.worst = line.Message
		if line.Component != "" {
			l.worst = line.Component + ": " + line.Message
		}
	case ok:
		l.last = line.Message
	case crash(s):
		l.worst = s
	default:
		l.last = s
	}
}

// String returns the description, "" if the program printed nothing.
func (l *LastError) String() string {
	if l.worst != "" {
		return l.worst
	}
	return l.last
}

// Component is the name of the field with the component of a line.
const Component = "component"

// Setup applies the log settings to the standard logger, which writes to stderr.
func Setup(cfg config.Log) {
	Apply(logrus.StandardLogger(), cfg, term.IsTerminal(int(os.Stderr.Fd())))
}

// Apply applies the log settings to a logger. colour is for text on a terminal.
func Apply(logger *logrus.Logger, cfg config.Log, colour bool) {
	levels := newLevels(cfg)
	logger.SetLevel(levels.most())
	var format logrus.Formatter = Text{Colour: colour}
	if cfg.Format == "json" {
		format = &logrus.JSONFormatter{TimestampFormat: timeFormat}
	}
	logger.SetFormatter(filter{levels: levels, format: format})
}

// Level is the level at which lines of a component are logged, for parts with a logger of their own.
func Level(cfg config.Log, component string) logrus.Level { return newLevels(cfg).of(component) }

// levels are the levels by component and the one of all others.
type levels struct {
	others logrus.Level
	by     map[string]logrus.Level
}

func newLevels(cfg config.Log) levels {
	l := levels{others: parseLevel(cfg.Level), by: map[string]logrus.Level{}}
	for component, level := range cfg.Levels {
		l.by[component] = parseLevel(level)
	}
	return l
}

func parseLevel(text string) logrus.Level {
	level, err := logrus.ParseLevel(text)
	if err != nil {
		return logrus.InfoLevel // does not happen: config.Resolve checks the level
	}
	return level
}

func (l levels) of(component string) logrus.Level {
	if level, ok := l.by[component]; ok {
		return level
	}
	return l.others
}

// most returns the most verbose level of all components.
func (l levels) most() logrus.Level {
	most := l.others
	for _, level := range l.by {
		most = max(most, level)
	}
	return most
}

// filter drops lines that are below their component's level.
type filter struct {
	levels levels
	format logrus.Formatter
}

// Format implements logrus.Formatter. It returns no bytes for a dropped line.
func (f filter) Format(e *logrus.Entry) ([]byte, error) {
	if len(f.levels.by) > 0 {
		component, _ := e.Data[Component].(string)
		if e.Level > f.levels.of(component) {
			return nil, nil
		}
	}
	return f.format.Format(e)
}
