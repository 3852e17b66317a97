package containerd

import (
	"errors"
	"testing"

	"github.com/sirupsen/logrus"
)

func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		message, err string
		dropped      bool
	}{
		{"failed check for fsverity support", "", true},
		{`ContainerStatus for "0a1b" failed`, "rpc error: code = NotFound desc = an error occurred", true},
		{`ContainerStatus for "0a1b" failed`, "rpc error: code = DeadlineExceeded", false},
		{`ContainerStatus for "0a1b" failed`, "", false},
		{"collecting metrics for 0a1b", "ttrpc: closed", true},
		{"GetContainerEvents failed, error", "rpc error: code = Canceled desc = context canceled", true},
		{"RunPodSandbox failed", "rpc error: code = NotFound", false},
	} {
		e := logrus.NewEntry(logrus.New())
		if c.err != "" {
			e = e.WithError(errors.New(c.err))
		}
		e.Message = c.message
		out, err := noiseFilter{&logrus.TextFormatter{}}.Format(e)
		if err != nil || (len(out) == 0) != c.dropped {
			t.Errorf("%s: %s: became %q, %v; want it dropped: %t", c.message, c.err, out, err, c.dropped)
		}
	}
}
