// Package nodecert renews the client certificate of an agent's own parts: it requests a new one from a server when two thirds of the
// validity have passed. Clients reload the file, so nothing restarts. Package certificates does the same on servers, and the
// kubelet rotates its own certificates.
package nodecert

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
)

// The longest pause between checks, because the clock may be set, and the pause after a failed attempt. A third of the validity, four
// months, is left for attempts.
const (
	longestSleep  = 24 * time.Hour
	sleepAfterErr = time.Hour
	tryTimeout    = time.Minute
)

// Renewal renews the certificate.
type Renewal struct {
	// Due returns the time of the renewal and the end of the validity.
	Due func() (due, expires time.Time, err error)
	// Renew replaces the certificate.
	Renew func(ctx context.Context) error
	// Reachable is closed when a server can be reached.
	Reachable <-chan struct{}
	// Log gets a line for each renewal. Nil means logrus' standard logger.
	Log logrus.FieldLogger
}

// Run renews until ctx is done. It is ready at once.
func (r Renewal) Run(ctx context.Context, ready func()) error {
	if r.Log == nil {
		r.Log = logrus.StandardLogger()
	}
	log := r.Log.WithField("component", "node-certificate")
	ready()
	select {
	case <-r.Reachable:
	case <-ctx.Done():
		return nil
	}
	for {
		timer := time.NewTimer(r.pass(ctx, log))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// pass renews the certificate if that is due and returns the time until the next pass.
func (r Renewal) pass(ctx context.Context, log logrus.FieldLogger) time.Duration {
	due, expires, err := r.Due()
	if err == nil && time.Now().Before(due) {
		return min(time.Until(due), longestSleep)
	}
	if err == nil {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		err = r.Renew(try)
	}
	if err != nil {
		if ctx.Err() == nil {
			log.WithError(err).Errorf("renewing the node's certificate, which expires on %s; trying again in an hour", expires.Format(time.DateOnly))
		}
		return sleepAfterErr
	}
	log.Info("renewed the node's certificate")
	if due, _, err = r.Due(); err != nil {
		return sleepAfterErr
	}
	return min(max(time.Until(due), sleepAfterErr), longestSleep)
}
