package coredns

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// child returns the child process. It starts one if there is none.
func (r *running) child() (*process, error) {
	if p := r.current.Load(); p.alive() {
		return p, nil
	}
	p, err := startProcess(r.Dir, r.Log, r.api)
	if err != nil {
		return nil, err
	}
	r.current.Store(p)
	if p.missing != "" && p.missing != r.report.Unconfined {
		r.log.WithField("missing", p.missing).Info("the name server has more privileges than it needs: this machine or container does not let it give them up")
	}
	r.setReport(func(s *clusterdns.Status) { s.PID, s.Unconfined = p.pid, p.missing })
	return p, nil
}

// noteEnd logs that the child has ended, and returns how long to wait before it is started again.
func (r *running) noteEnd() time.Duration {
	p, delay := r.current.Load(), time.Duration(0)
	if time.Since(p.started) < lived {
		delay = restartDelay
	}
	r.log.WithField("pid", p.pid).Errorf("the name server's process ended (%s); starting it again", p.how)
	return delay
}

// A child that ended earlier than lived after its start is started again after restartDelay, others at once.
const (
	lived        = 10 * time.Second
	restartDelay = 2 * time.Second
)

// endHung kills each child that does not answer at all, so that follow starts another one. A child that is busy answers: this asks its HTTP/2 server, not
// CoreDNS, and anything may keep a query without an answer.
func (r *running) endHung(ctx context.Context) {
	for lifecycle.Sleep(ctx, pingInterval) == nil {
		if p := r.current.Load(); p.alive() && p.hangs(ctx, patience) {
			r.log.WithField("pid", p.pid).Errorf("the name server's process gives no sign of life for %s: killing it", patience)
			p.kill()
		}
	}
}

// The time between two signs of life that a child is asked for, and how long it may give none.
const (
	pingInterval = 10 * time.Second
	patience     = 30 * time.Second
)

// gather implements prometheus.Gatherer with the metrics of the child that runs.
func (r *running) gather() ([]*dto.MetricFamily, error) {
	p := r.current.Load()
	if !p.alive() {
		return nil, nil
	}
	return p.gather()
}
