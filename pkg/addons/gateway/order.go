package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/acme"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// order has a certificate made, and stores it. It writes down before what it asks for, and afterwards what came of it.
func (w *issuing) order(ctx context.Context, c acme.Candidate, of translate.Wanted, nodes []*corev1.Node) error {
	alternative, err := w.probes.alternative(ctx, nodes, w.ledger.book.Alternative(c))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // no host can be validated
		why := acme.Sentence(err)
		w.failed(ctx, c, of, why, w.ledger.book.Unreachable(c, why, time.Now()))
		return w.ledger.write(ctx, w.client)
	}
	order, err := w.ledger.book.Begin(c, time.Now())
	if err != nil {
		return err
	}
	if err := w.ledger.write(ctx, w.client); err != nil {
		return err
	}
	w.tell(ctx, of, corev1.EventTypeNormal, "CertificateOrdered", "asking %s for a certificate for %s", w.ACME.Server, strings.Join(c.Hosts, ", "))
	chain, leaf, err := w.obtain(ctx, order, alternative, nodes)
	var unstored error
	if err == nil {
		unstored = store(ctx, w.client, of.Secret, w.ACME.Server, chain, []byte(order.Key))
	}
	if ctx.Err() != nil {
		return ctx.Err() // another server goes on with the order
	}
	refusal := acme.Refusal{}
	switch {
	case unstored != nil: // the namespace may have a quota, for example
		w.refused(ctx, c, of, acme.Sentence(unstored), false)
	case err == nil:
		w.ledger.book.Succeeded(c, leaf, time.Now())
		w.tell(ctx, of, corev1.EventTypeNormal, "CertificateIssued", "Secret %s has a certificate for %s until %s; it is renewed after %s",
			of.Secret, strings.Join(c.Hosts, ", "), clock(leaf.NotAfter), clock(acme.Due(leaf)))
	case errors.As(err, &refusal):
		w.refused(ctx, c, of, refusal.Error(), refusal.RateLimited())
	case errors.As(err, new(unansweredError)): // of these hosts only: nobody else waits
		w.refused(ctx, c, of, acme.Sentence(err), false)
	default:
		w.account = nil
		why := acme.Sentence(err)
		w.failed(ctx, c, of, why, w.ledger.book.Unreachable(c, why, time.Now()))
	}
	return errors.Join(w.ledger.write(ctx, w.client), w.present(ctx, nil))
}

// refused writes down a failure of these hosts, and tells of it.
func (w *issuing) refused(ctx context.Context, c acme.Candidate, of translate.Wanted, why string, limited bool) {
	w.failed(ctx, c, of, why, w.ledger.book.Refused(c, why, limited, time.Now()))
}

func (w *issuing) failed(ctx context.Context, c acme.Candidate, of translate.Wanted, why string, again time.Time) {
	w.tell(ctx, of, corev1.EventTypeWarning, "CertificateFailed", "no certificate for %s: %s; it is tried again at %s", strings.Join(c.Hosts, ", "), why, clock(again))
}

// obtain asks the ACME server, with an account that it may have to make.
func (w *issuing) obtain(ctx context.Context, order *acme.Order, alternative bool, nodes []*corev1.Node) (chain []byte, leaf *x509.Certificate, err error) {
	if w.account == nil {
		server, err := acme.ReadServer(w.ACME)
		if err != nil {
			return nil, nil, err
		}
		if w.account, err = server.Open(ctx, w.ledger.key); err != nil {
			return nil, nil, fmt.Errorf("ACME server %s: %w", w.ACME.Server, err)
		}
	}
	return w.account.Obtain(ctx, order, acme.Steps{
		Alternative: alternative,
		Placed:      func(ctx context.Context) error { return w.ledger.write(ctx, w.client) },
		Present: func(ctx context.Context, all []acme.Challenge) error {
			if err := w.present(ctx, all); err != nil {
				return err
			}
			return w.probes.await(ctx, nodes, all)
		},
	})
}
