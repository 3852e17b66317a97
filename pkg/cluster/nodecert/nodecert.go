// Package nodecert keeps the certificate valid with which an agent's own parts call the API: it asks a server for the
// next one when two thirds of its life have passed. Clients read the file again by themselves, so nothing restarts. A
// server's node has its certificates from package certificates, and the kubelet rotates its own.
package nodecert

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
)

// How long to sleep at most, because the clock may be set, and after a try that went wrong. A third of a certificate's
// life, four months, is left then.
const (
	longestSleep  = 24 * time.Hour
	sleepAfterErr = time.Hour
	tryTimeout    = time.Minute
)

// Renewal is the component.
type Renewal struct {
	// Due is when the certificate is to be renewed, and when it is of no use any more.
	Due func() (due, expires time.Time, err error)
	// Renew gets a new one.
	Renew func(ctx context.Context) error
	// Reachable is closed when there is a server to ask.
	Reachable <-chan struct{}
	// Log takes a line per renewal. Nil is logrus' standard logger.
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

// pass renews if that is due and returns how long to sleep.
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
