package containerd

import (
	"slices"

	"github.com/sirupsen/logrus"
)

// noise are warnings that belong to every start and that nobody can act on.
var noise = []string{
	"failed check for fsverity support", // few file systems have it
}

// logger writes where the standard logger does, at a level of its own.
func logger(level logrus.Level) *logrus.Entry {
	std := logrus.StandardLogger()
	own := &logrus.Logger{Out: std.Out, Hooks: std.Hooks, Formatter: quiet{std.Formatter}, Level: level, ExitFunc: std.ExitFunc}
	return own.WithField("component", "containerd")
}

// quiet drops noise. A dropped line is no bytes.
type quiet struct{ logrus.Formatter }

func (q quiet) Format(e *logrus.Entry) ([]byte, error) {
	if slices.Contains(noise, e.Message) {
		return nil, nil
	}
	return q.Formatter.Format(e)
}
