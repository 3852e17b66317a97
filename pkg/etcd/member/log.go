package member

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger returns a zap logger that writes to log. etcd ends the process when it logs a fatal line and panics with a
// stack trace at another kind: here both become an error in the channel and end only their goroutine, so that the
// process can stop with one error line.
func logger(log *logrus.Logger, fatal chan<- error) *zap.Logger {
	stop := stopper{fatal}
	return zap.New(core{entry: log.WithField("component", "etcd")}, zap.WithFatalHook(stop), zap.WithPanicHook(stop))
}

type stopper struct{ fatal chan<- error }

// OnWrite is called after a fatal or panic line was logged.
func (s stopper) OnWrite(line *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(line.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", line.Message, cause)
		}
	}
	select {
	case s.fatal <- err:
	default: // the first one is the cause
	}
	runtime.Goexit()
}

// core writes lines to logrus. Lines of level info get level debug: a start has about 40 of them.
type core struct{ entry *logrus.Entry }

func level(l zapcore.Level) logrus.Level {
	switch {
	case l < zapcore.InfoLevel:
		return logrus.TraceLevel
	case l < zapcore.WarnLevel:
		return logrus.DebugLevel
	case l < zapcore.ErrorLevel:
		return logrus.WarnLevel
	default:
		return logrus.ErrorLevel
	}
}

func (c core) Enabled(l zapcore.Level) bool { return c.entry.Logger.IsLevelEnabled(level(l)) }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.entry.WithFields(decode(fields))}
}

func (c core) Check(line zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(line.Level) {
		return checked.AddCore(line, c)
	}
	return checked
}

func (c core) Write(line zapcore.Entry, fields []zapcore.Field) error {
	l := level(line.Level)
	if l < logrus.DebugLevel && slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(line.Message, s) }) {
		l = logrus.DebugLevel
	}
	c.entry.WithFields(decode(fields)).Log(l, line.Message)
	return nil
}

// expected are parts of warnings and errors that normal starts, stops and joins cause.
var expected = []string{
	"Running http and grpc server on single port",
	"simple token is not cryptographically signed",
	"Failed to detect schema version",  // a new database has none yet
	"failed to update storage version", // the same
	"failed to publish local member",   // tried again until the log is applied
	"since there are still pending configuration changes to apply",
	"closed TCP streaming connection with remote peer", // a newer one has taken its place
	"lost TCP streaming connection with remote peer",   // "peer became inactive" says it once
	"failed to find remote peer in cluster",            // one of the two has just joined
	"stopped publish because server is stopping",
	"request stats", // "apply request took too long" says it
	"setting up serving from embedded etcd failed", // because it is closed
	"insecure grpc server due to error",            // the same
}

func (c core) Sync() error { return nil }

func decode(fields []zapcore.Field) logrus.Fields {
	out := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(out)
	}
	return out.Fields
}
