package kube

import (
	"bytes"
	"context"
	"log"
	"log/slog"

	"github.com/sirupsen/logrus"
)

// SlogHandler returns a handler that leads log/slog into logrus, under a component's name.
func SlogHandler(component string) slog.Handler {
	return slogHandler{entry: logrus.WithField("component", component)}
}

// setupSlog routes the default logger. It changes the logger of package log too, so it is called before setupStdLog.
func setupSlog() {
	slog.SetDefault(slog.New(SlogHandler("go")))
}

// slogHandler writes records to logrus, with the fields of its logger.
type slogHandler struct {
	entry  *logrus.Entry
	prefix string // of fields' names, by groups
}

// slogLevel finds logrus' level.
func slogLevel(l slog.Level) logrus.Level {
	switch {
	case l >= slog.LevelError:
		return logrus.ErrorLevel
	case l >= slog.LevelWarn:
		return logrus.WarnLevel
	case l >= slog.LevelInfo:
		return logrus.InfoLevel
	}
	return logrus.DebugLevel
}

// Enabled reports whether a line of that level is written.
func (h slogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.entry.Logger.IsLevelEnabled(slogLevel(l))
}

// Handle writes a line.
func (h slogHandler) Handle(_ context.Context, r slog.Record) error {
	fields := logrus.Fields{}
	r.Attrs(func(a slog.Attr) bool {
		fields[h.prefix+a.Key] = a.Value.Any()
		return true
	})
	h.entry.WithFields(fields).Log(slogLevel(r.Level), r.Message)
	return nil
}

// WithAttrs keeps fields for all later lines.
func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := logrus.Fields{}
	for _, a := range attrs {
		fields[h.prefix+a.Key] = a.Value.Any()
	}
	h.entry = h.entry.WithFields(fields)
	return h
}

// WithGroup puts a name before those of later fields.
func (h slogHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

// setupStdLog routes the standard library's logger into logrus. CoreDNS writes there, with levels in front.
func setupStdLog() {
	log.SetFlags(0)
	log.SetOutput(stdLog{})
}

type stdLog struct{}

// stdLevels are how CoreDNS writes levels. FATAL is followed by the process' end.
var stdLevels = []struct {
	prefix string
	level  logrus.Level
}{
	{"[DEBUG] ", logrus.DebugLevel},
	{"[INFO] Reloading", logrus.DebugLevel}, // coracle logs the reload itself
	{"[INFO] ", logrus.InfoLevel},
	{"[WARNING] ", logrus.WarnLevel},
	{"[ERROR] ", logrus.ErrorLevel},
	{"[PANIC] ", logrus.ErrorLevel},
	{"[FATAL] ", logrus.ErrorLevel},
}

// Write takes one line.
func (stdLog) Write(line []byte) (int, error) {
	text := bytes.TrimRight(line, "\n")
	for _, l := range stdLevels {
		if rest, ok := bytes.CutPrefix(text, []byte(l.prefix)); ok {
			logrus.WithField("component", "dns").Log(l.level, string(rest))
			return len(line), nil
		}
	}
	level := logrus.InfoLevel
	if bytes.HasPrefix(text, []byte("http: TLS handshake error")) {
		level = logrus.DebugLevel // any neighbour can cause as many as it likes
	}
	logrus.WithField("component", "go").Log(level, string(text))
	return len(line), nil
}
