package coredns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// listenTimeout is how long a start waits for Listen before it uses Before.
const listenTimeout = 3 * time.Second

// addresses are the result of Listen.
type addresses struct {
	listen []netip.AddrPort
	err    error
}

// findListen sets the addresses to listen on.
func (r *running) findListen(ctx context.Context) error {
	result := make(chan addresses, 1)
	go func() {
		listen, err := r.Listen(ctx)
		if err == nil && len(listen) == 0 {
			err = errors.New("the node has no address to listen on")
		}
		result <- addresses{listen, err}
		close(r.listenKnown)
	}()
	timeout := time.NewTimer(listenTimeout)
	defer timeout.Stop()
	for {
		select {
		case a := <-result:
			r.listen = a.listen
			return a.err
		case <-timeout.C:
			if before := r.Before(); len(before) > 0 {
				r.log.Info("the API server does not answer: serving without it")
				r.listen, r.lateListen = before, result
				return nil
			}
			timeout.Reset(time.Second) // after a reboot the node gets its addresses at about this time
		}
	}
}

// awaitReady calls ready when the Service kubernetes resolves, also by way of kube-proxy. If it does not within readyTimeout, for instance
// because of the user's Corefile, it sends the error to unanswered and calls ready as well, so that the node can start.
func (r *running) awaitReady(ctx context.Context, ready func(), unanswered chan<- error) {
	probing, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		select {
		case <-r.listenKnown:
		case <-probing.Done():
		}
		select {
		case <-time.After(readyTimeout):
			giveUp(fmt.Errorf("no answer within %s", readyTimeout))
		case <-probing.Done():
		}
	}()
	err := lifecycle.Until(probing, "an answer", r.probe)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		unanswered <- fmt.Errorf("the Corefile does not answer for the cluster: %w", err)
	} else if r.Proxied {
		if err := lifecycle.Until(probing, "kube-proxy to send queries here", r.probeService); err != nil && ctx.Err() == nil {
			r.log.WithError(err).Warn("ready, but queries of pods do not arrive: is there a firewall, or is kube-proxy late?")
		}
	}
	ready()
}

// readyTimeout is how long awaitReady waits, from when Listen has returned.
const readyTimeout = 15 * time.Second

// probe probes every address.
func (r *running) probe(ctx context.Context) error {
	for _, l := range r.listen {
		if err := probe(ctx, l, r.Domain, r.APIServer); err != nil {
			return err
		}
	}
	return nil
}

// probeService probes the cluster's DNS Service.
func (r *running) probeService(ctx context.Context) error {
	for _, ip := range r.ServiceIPs {
		if err := probe(ctx, netip.AddrPortFrom(ip, 53), r.Domain, r.APIServer); err != nil {
			return err
		}
	}
	return nil
}
