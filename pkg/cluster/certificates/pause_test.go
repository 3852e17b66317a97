package certificates

import (
	"context"
	"errors"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// TestPauses: a node with an expired certificate is cut off, so it tries again soon; and a server looks once a day even if nothing is due.
func TestPauses(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	for _, test := range []struct{ left, want time.Duration }{{time.Hour + time.Second, sleepAfterErr}, {10 * time.Minute, 10 * time.Minute}, {-time.Hour, shortestSleep}} {
		r := AgentRenewal{
			Due: func() (time.Time, time.Time, error) {
				return time.Now().Add(-24 * time.Hour), time.Now().Add(test.left), nil
			},
			Renew: func(context.Context) error { return errors.New("no server answers") },
		}
		if got := r.pass(t.Context(), log); test.want-got > time.Second || got > test.want {
			t.Errorf("with %s left it pauses %s", test.left, got)
		}
	}
	cfg := testConfig(t)
	if _, err := pki.EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	if got := (Renewal{Config: cfg}).pass(log); got != longestSleep {
		t.Errorf("a server looks again after %s", got)
	}
}
