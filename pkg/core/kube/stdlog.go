package kube

import (
	"bytes"
	"log"

	"github.com/sirupsen/logrus"
)

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
	{"[INFO] Reloading", logrus.DebugLevel}, // our line about it says more
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
	logrus.WithField("component", "go").Info(string(text))
	return len(line), nil
}
