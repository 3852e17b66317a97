package containerd

import (
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
)

// noise are messages, by how they begin and what their error contains, that belong to every start or to every pod that is
// deleted, and that no operator can act on.
var noise = []struct{ message, err string }{
	{"failed check for fsverity support", ""}, // few file systems have it
	// The kubelet asks once more for a container that it has just removed.
	{"ContainerStatus for ", "code = NotFound"},
	// A container has ended meanwhile.
	{"collecting metrics for ", "ttrpc: closed"},
	{"collecting metrics for ", "no such device"},
}

// logger writes where the standard logger does, at a level of its own.
func logger(level logrus.Level) *logrus.Entry {
	std := logrus.StandardLogger()
	own := &logrus.Logger{Out: std.Out, Hooks: std.Hooks, Formatter: quiet{std.Formatter}, Level: level, ExitFunc: std.ExitFunc}
	return own.WithField("component", "containerd")
}

// quiet drops noise. A dropped line is no bytes.
type quiet struct{ logrus.Formatter }

// Format implements logrus.Formatter.
func (q quiet) Format(e *logrus.Entry) ([]byte, error) {
	for _, n := range noise {
		if strings.HasPrefix(e.Message, n.message) && strings.Contains(fmt.Sprint(e.Data[logrus.ErrorKey]), n.err) {
			return nil, nil
		}
	}
	return q.Formatter.Format(e)
}
