package kube

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sirupsen/logrus"
)

func capture(t *testing.T, level logrus.Level) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	logger := logrus.StandardLogger()
	oldOut, oldLevel, oldFormat := logger.Out, logger.GetLevel(), logger.Formatter
	logger.SetOutput(&out)
	logger.SetLevel(level)
	logger.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true, DisableColors: true})
	t.Cleanup(func() { logger.SetOutput(oldOut); logger.SetLevel(oldLevel); logger.SetFormatter(oldFormat) })
	return &out
}

func TestUnstructured(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"info":     {"I1121 10:44:00.000000 1234 file.go:56] hello\n", ""},
		"warning":  {"W1121 10:44:00.000000 1234 file.go:56] watch [out] now\n", `level=warning msg="watch [out] now" component=kubernetes`},
		"error":    {"E1121 10:44:00.000000 1234 file.go:56] broken\n", `level=error msg=broken component=kubernetes`},
		"expected": {"W1121 10:44:00.000000 1234 file.go:56] Skipping API x/v1 because it has no resources.\n", ""},
		"empty":    {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := capture(t, logrus.InfoLevel)
			var last atomic.Pointer[string]
			new(noiseFilter).writeUnstructured([]byte(c.line), &last)
			if got := strings.TrimSpace(out.String()); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	t.Run("fatal is kept for the end", func(t *testing.T) {
		var last atomic.Pointer[string]
		new(noiseFilter).writeUnstructured([]byte("F1121 10:44:00.000000 1234 file.go:56] no way\n"), &last)
		if p := last.Load(); p == nil || *p != "no way" {
			t.Errorf("got %v", p)
		}
	})
}

func TestSink(t *testing.T) {
	out := capture(t, logrus.DebugLevel)
	s := sink{component: "kube-scheduler"}.WithName("queue").WithValues("pod", "a", "level", 3)
	s.Info(0, "popped", "component", "x")
	s.Error(errors.New("bad"), "gone")
	want := `level=debug msg=popped component=kube-scheduler k8s.component=x k8s.level=3 logger=queue pod=a
level=error msg=gone component=kube-scheduler error=bad k8s.level=3 logger=queue pod=a
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestExitLevel(t *testing.T) {
	if got := exitLevel(`Get "https://127.0.0.1:6443": ` + errFenced.Error()); got != logrus.DebugLevel {
		t.Errorf("a client that was stopped: %s", got)
	}
	if got := exitLevel("no such file"); got != logrus.ErrorLevel {
		t.Errorf("another reason: %s", got)
	}
}
