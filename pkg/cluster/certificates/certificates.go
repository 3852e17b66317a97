// Package certificates renews the certificates of a running machine: on a server all of them, on an agent the client certificate of
// coracle's own parts. The parts that use them reload the files (see docs/security.md), so nothing restarts. Package pki issues the
// certificates; the kubelet rotates its own.
package certificates

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/clock"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Bounds of the pause between checks. The upper one is for clock changes that the kernel does not report, the lower one for an authority
// that is about to expire. Renewal begins with a third of the validity left (four months by default), so hourly retries suffice after an error, or
// several in that third.
const (
	longestSleep  = 24 * time.Hour
	shortestSleep = time.Minute
	sleepAfterErr = time.Hour
	retries       = 5
	shortestRetry = 10 * time.Second
)

// retryIn is the pause after an error, for a certificate that ends after a time, or has ended.
func retryIn(left time.Duration) time.Duration {
	if left <= 0 {
		return shortestSleep
	}
	return max(min(sleepAfterErr, left/retries), shortestRetry)
}

// tryTimeout limits a request for an agent's certificate.
const tryTimeout = time.Minute

// Renewal renews a server's certificates when two thirds of their validity have passed, or when they are invalid because the clock was set.
type Renewal struct {
	Config config.Config
	// Log gets a line for each renewal. Nil means logrus' standard logger.
	Log logrus.FieldLogger

	clockSet <-chan struct{} // tests set the clock
}

// Run renews until ctx is done. It is ready at once.
func (r Renewal) Run(ctx context.Context, ready func()) error {
	log := logger(r.Log, "certificates")
	if r.clockSet == nil {
		set, err := clock.Watch(ctx)
		if err != nil {
			log.WithError(err).Debug("checking once a day only")
		}
		r.clockSet = set
	}
	ready()
	repeat(ctx, r.clockSet, func() time.Duration { return r.pass(log) })
	return nil
}

func logger(log logrus.FieldLogger, component string) logrus.FieldLogger {
	if log == nil {
		log = logrus.StandardLogger()
	}
	return log.WithField("component", component)
}

// repeat calls pass until ctx is done: at once, after the time that it returns, and when the clock is set.
func repeat(ctx context.Context, clockSet <-chan struct{}, pass func() time.Duration) {
	for {
		timer := time.NewTimer(pass())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-clockSet:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pass renews the certificates that are due and returns the time until the next pass.
func (r Renewal) pass(log logrus.FieldLogger) time.Duration {
	report, err := pki.EnsureServer(r.Config)
	if len(report.Issued) > 0 {
		log.WithField("certificates", strings.Join(report.Issued, ", ")).Info("renewed certificates")
	}
	if err != nil {
		pause := retryIn(cmp.Or(r.Config.CertificateLife, retries*sleepAfterErr) / 3)
		log.WithError(err).Errorf("renewing certificates; trying again in %s", pause)
		return pause
	}
	return min(max(time.Until(report.Next), shortestSleep), longestSleep)
}

// AgentRenewal renews the client certificate of an agent's own parts when two thirds of its validity have passed.
type AgentRenewal struct {
	// Due returns the time of the renewal and the end of the validity.
	Due func() (due, expires time.Time, err error)
	// Renew requests another certificate from a server and replaces the present one.
	Renew func(ctx context.Context) error
	// Reachable is closed when a server can be reached.
	Reachable <-chan struct{}
	// Look is called at least that often, if it is set, and reports whether it is due because the cluster has another authority.
	Look  func(ctx context.Context) (due bool)
	Every time.Duration
	// Log gets a line for each renewal. Nil means logrus' standard logger.
	Log logrus.FieldLogger

	clockSet <-chan struct{} // tests set the clock
}

// Run renews until ctx is done. It is ready at once.
func (r AgentRenewal) Run(ctx context.Context, ready func()) error {
	ready()
	select {
	case <-r.Reachable:
		if r.clockSet == nil {
			r.clockSet, _ = clock.Watch(ctx) // else an error is noticed within a day
		}
		repeat(ctx, r.clockSet, func() time.Duration { return r.pass(ctx, logger(r.Log, "node-certificate")) })
	case <-ctx.Done():
	}
	return nil
}

// pass renews the certificate if that is due and returns the time until the next pass.
func (r AgentRenewal) pass(ctx context.Context, log logrus.FieldLogger) time.Duration {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	due, expires, err := r.Due()
	if err == nil && (r.Look == nil || !r.Look(try)) && time.Now().Before(due) {
		return min(time.Until(due), r.longest())
	}
	if err == nil {
		err = r.Renew(try)
	}
	if err != nil {
		pause := retryIn(time.Until(expires))
		if ctx.Err() == nil {
			log.WithError(err).Errorf("renewing the node's certificate, valid until %s; trying again in %s", expires.Format(time.DateOnly), pause)
		}
		return pause
	}
	log.Info("renewed the node's certificate")
	if due, _, err = r.Due(); err != nil || time.Now().After(due) { // the authority ends
		return sleepAfterErr
	}
	return min(time.Until(due), r.longest())
}

func (r AgentRenewal) longest() time.Duration { return cmp.Or(r.Every, longestSleep) }
