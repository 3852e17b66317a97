package kube

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

func TestSlogHandler(t *testing.T) {
	var out bytes.Buffer
	before, level := logrus.StandardLogger().Out, logrus.GetLevel()
	logrus.SetOutput(&out)
	logrus.SetLevel(logrus.InfoLevel)
	defer func() { logrus.SetOutput(before); logrus.SetLevel(level) }()
	log := slog.New(SlogHandler("helm")).With("release", "web").WithGroup("g")
	log.Debug("unseen")
	log.Warn("seen", "n", 3)
	_, _ = stdLog{}.Write([]byte("http: TLS handshake error unseen\n"))
	for _, want := range []string{"level=warning", "msg=seen", "component=helm", "release=web", "g.n=3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "unseen") {
		t.Error("a debug line was written")
	}
}
