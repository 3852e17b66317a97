// Package certificates renews the certificates of a running server. The parts that use them reload the files (see docs/security.md), so
// nothing restarts. Package pki issues the certificates; the kubelet rotates its own.
package certificates

import (
	"context"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Bounds of the pause between passes. The upper one is for clock changes that the kernel does not report, the lower one for an authority
// that is about to expire.
const (
	longestSleep  = 24 * time.Hour
	shortestSleep = time.Minute
	sleepAfterErr = time.Hour
)

// Renewal renews certificates when two thirds of their validity have passed, or when they are invalid because the clock was set.
type Renewal struct {
	Config config.Config
	// Log gets a line for each renewal. Nil means logrus' standard logger.
	Log logrus.FieldLogger

	clockSet <-chan struct{} // tests set the clock
}

// Run renews until ctx is done. A failed pass is logged and repeated: the present certificates are still valid for a third of their
// validity.
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

// pass renews the certificates that are due and returns the time until the next pass.
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
