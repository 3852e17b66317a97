// Package logs sets up logrus, the one sink of every log line. Lines carry a "component" field, by which levels can
// differ. A line is text for people or JSON for machines; Parse reads both back, which is how the front knows what
// a child process complained about last.
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

// Line is what Parse understands of a log line. Message keeps the fields of a text line.
type Line struct {
	Time      time.Time
	Level     logrus.Level
	Component string
	Message   string
}

// Parse reads a line that Text without colour or the JSON format wrote. ok is false for anything else.
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

// Alarming reports whether a line tells of an error, or is the first of a crash.
func Alarming(s string) bool {
	line, ok := Parse(s)
	return ok && line.Level <= logrus.ErrorLevel || crash(s)
}

// crash finds the line with which the Go runtime begins to tell of one. Stacks follow.
func crash(s string) bool {
	return strings.HasPrefix(s, "panic: ") || strings.HasPrefix(s, "fatal error: ")
}

// LastError collects the lines of a program and tells the one that says best why it ended: the last error it
// logged, the panic or fatal error of the Go runtime, or else simply its last line.
type LastError struct{ last, worst string }

// Line takes the next line.
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

// String tells what was found, "" if the program printed nothing.
func (l *LastError) String() string {
	if l.worst != "" {
		return l.worst
	}
	return l.last
}

// Component is the name of the field that says which part a line is from.
const Component = "component"

// Setup applies the log settings to the standard logger, which writes to stderr.
func Setup(cfg config.Log) {
	Apply(logrus.StandardLogger(), cfg, term.IsTerminal(int(os.Stderr.Fd())))
}

// Apply gives a logger the settings. Colour is for text on a terminal.
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
		return logrus.InfoLevel // Resolve has checked it
	}
	return level
}

func (l levels) of(component string) logrus.Level {
	if level, ok := l.by[component]; ok {
		return level
	}
	return l.others
}

// most is the most talkative level that any component has.
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

// Format implements logrus.Formatter. A dropped line is no bytes.
func (f filter) Format(e *logrus.Entry) ([]byte, error) {
	if len(f.levels.by) > 0 {
		component, _ := e.Data[Component].(string)
		if e.Level > f.levels.of(component) {
			return nil, nil
		}
	}
	return f.format.Format(e)
}
