package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/slots"
)

// TestHold keeps a host with a server for exploration, for the duration in CORACLE_HOLD (e.g. 10m). It prints how to
// enter the host.
func TestHold(t *testing.T) {
	slots.Take(t)
	hold, err := time.ParseDuration(os.Getenv("CORACLE_HOLD"))
	if err != nil {
		t.Skip("CORACLE_HOLD is not set: this is for looking around by hand")
	}
	h := newHost(t, "solo")
	s := h.Start(strings.Fields(os.Getenv("CORACLE_HOLD_ARGS"))...)
	t.Logf("\nenter with: nsenter -t %d -m -n -u -p -i -C\n", h.PID())
	_ = s.Wait(hold)
	t.Log(s.Log())
}
