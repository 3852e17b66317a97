// Package logs sets up logrus, the one sink of every log line. Lines carry a "component" field.
package logs

import (
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/config"
)

// Setup applies the log settings to the standard logger, which writes to stderr.
func Setup(cfg config.Log) {
	logger := logrus.StandardLogger()
	level, err := logrus.ParseLevel(cfg.Level)
	if err != nil {
		level = logrus.InfoLevel // Resolve has checked it
	}
	logger.SetLevel(level)
	if cfg.Format == "json" {
		logger.SetFormatter(&logrus.JSONFormatter{})
		return
	}
	logger.SetFormatter(&logrus.TextFormatter{
		FullTimestamp:    true,
		TimestampFormat:  "15:04:05.000",
		DisableColors:    !term.IsTerminal(int(os.Stderr.Fd())),
		DisableTimestamp: false,
	})
}
