// Package logs sets up logrus, the one sink of every log line. Lines carry a "component" field, by which levels can
// differ. A line is text for people or JSON for machines; Parse reads both back, which is how the front knows what
// a child process complained about last.
package logs

import (
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

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
