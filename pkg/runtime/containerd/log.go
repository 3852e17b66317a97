package containerd

import (
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
)

// noise are messages that every start or every deletion of a pod causes, and that need no action: the beginning of the message, and a
// part of its error.
var noise = []struct{ message, err string }{
	{"failed check for fsverity support", ""}, // few file systems have it
	// The kubelet requests the status of a container that it has just removed.
	{"ContainerStatus for ", "code = NotFound"},
	// A container has ended meanwhile.
	{"collecting metrics for ", "ttrpc: closed"},
	{"collecting metrics for ", "no such device"},
	// The kubelet has stopped, and does not want to hear of containers any more.
	{"GetContainerEvents failed", "code = "},
}

// logger returns a logger that writes like the standard logger, at its own level.
func logger(level logrus.Level) *logrus.Entry {
	std := logrus.StandardLogger()
	own := &logrus.Logger{Out: std.Out, Hooks: std.Hooks, Formatter: noiseFilter{std.Formatter}, Level: level, ExitFunc: std.ExitFunc}
	return own.WithField("component", "containerd")
}

// noiseFilter drops noise: it formats such a line as no bytes.
type noiseFilter struct{ logrus.Formatter }

// Format implements logrus.Formatter.
func (q noiseFilter) Format(e *logrus.Entry) ([]byte, error) {
	for _, n := range noise {
		if strings.HasPrefix(e.Message, n.message) && strings.Contains(fmt.Sprint(e.Data[logrus.ErrorKey]), n.err) {
			return nil, nil
		}
	}
	return q.Formatter.Format(e)
}
