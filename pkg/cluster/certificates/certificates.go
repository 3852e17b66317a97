// Package certificates keeps a running server's certificates valid. The parts that use them read the files again
// by themselves (docs/security.md says which and how), so nothing restarts. What is issued is package pki's
// business, and the kubelet rotates its own.
package certificates

import (
	"context"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// How long the renewal sleeps. The longest sleep bounds the harm of a clock that was set where the kernel could not
// tell us; the shortest keeps an authority that is about to expire from making us spin.
const (
	longestSleep  = 24 * time.Hour
	shortestSleep = time.Minute
	sleepAfterErr = time.Hour
)

// Renewal issues certificates again when two thirds of their life have passed, or when the clock was set so that
// they are not valid any more.
type Renewal struct {
	Config config.Config
	// Log takes a line per renewal. Nil is logrus' standard logger.
	Log logrus.FieldLogger

	clockSet <-chan struct{} // tests set the clock
}

// Run renews until ctx is done. A pass that goes wrong is logged and tried again: the certificates in force still
// have a third of their life, and the API had better keep running meanwhile.
func (r Renewal) Run(ctx context.Context, ready func()) error {
	if r.Log == nil {
		r.Log = logrus.StandardLogger()
	}
	log := r.Log.WithField("component", "certificates")
	if r.clockSet == nil {
		set, err := watchClock(ctx)
		if err != nil {
			log.WithError(err).Debug("checking once a day only")
		}
		r.clockSet = set
	}
	ready()
	for {
		timer := time.NewTimer(r.pass(log))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.clockSet:
			timer.Stop()
			log.Debug("the clock was set")
		case <-timer.C:
		}
	}
}

// pass renews what is due and returns how long to sleep.
func (r Renewal) pass(log logrus.FieldLogger) time.Duration {
	report, err := pki.Renew(r.Config)
	if len(report.Issued) > 0 {
		log.WithField("certificates", strings.Join(report.Issued, ", ")).Info("renewed certificates")
	}
	if err != nil {
		log.WithError(err).Error("renewing certificates; trying again in an hour")
		return sleepAfterErr
	}
	return min(max(time.Until(report.Next), shortestSleep), longestSleep)
}
