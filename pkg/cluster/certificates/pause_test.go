package certificates

import (
	"context"
	"errors"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// TestPauses: the sooner a node's certificate ends, the sooner it tries again; and a server looks once a day even if nothing is due.
func TestPauses(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	for _, test := range []struct{ left, want time.Duration }{{6 * time.Hour, sleepAfterErr}, {10 * time.Minute, 2 * time.Minute}, {20 * time.Second, shortestRetry}, {-time.Hour, shortestSleep}} {
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
