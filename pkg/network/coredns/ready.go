package coredns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// patience is how long a start waits for Listen before it goes by Before.
const patience = 3 * time.Second

// addresses are the outcome of Listen.
type addresses struct {
	listen []netip.AddrPort
	err    error
}

// address finds out where to listen.
func (r *running) address(ctx context.Context) error {
	said := make(chan addresses, 1)
	go func() {
		listen, err := r.Listen(ctx)
		if err == nil && len(listen) == 0 {
			err = errors.New("the node has no address to listen on")
		}
		said <- addresses{listen, err}
		close(r.known)
	}()
	tired := time.NewTimer(patience)
	defer tired.Stop()
	for {
		select {
		case a := <-said:
			r.listen = a.listen
			return a.err
		case <-tired.C:
			if before := r.Before(); len(before) > 0 {
				r.log.Info("the API server is away: serving what is known without it")
				r.listen, r.late = before, said
				return nil
			}
			tired.Reset(time.Second) // after a reboot the network is set up at about this time
		}
	}
}

// announce calls ready when the API server's Service resolves. A Corefile of the user's may be one with which it
// never does: that is told, but keeps no machine from starting.
func (r *running) announce(ctx context.Context, ready func(), unanswered chan<- error) {
	probing, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		select {
		case <-r.known:
		case <-probing.Done():
		}
		select {
		case <-time.After(readyPatience):
			giveUp(fmt.Errorf("%s was enough", readyPatience))
		case <-probing.Done():
		}
	}()
	err := lifecycle.Until(probing, "an answer", r.probe)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		unanswered <- fmt.Errorf("the Corefile does not answer for the cluster: %w", err)
	}
	ready()
}

// readyPatience is how long, with an API server, readiness waits for an answer about the cluster.
const readyPatience = 15 * time.Second

// probe asks every address.
func (r *running) probe(ctx context.Context) error {
	for _, l := range r.listen {
		if err := probe(ctx, l, r.Domain, r.APIServer); err != nil {
			return err
		}
	}
	return nil
}
