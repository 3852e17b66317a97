package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/acme"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Issuer gets the certificates that Ingresses want from an ACME server, and renews them. It runs on one server, and works on one order at a time. It is
// part of the control plane: the gateway's process, which strangers reach, neither has the account nor may write Secrets.
type Issuer struct {
	Kubeconfig string
	Self       string // the name of this server's node, the source of Events
	ACME       config.ACME

	outcome *outcome
}

// Run works until ctx is done. It is ready at once, because no component depends on it.
func (s Issuer) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, s.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	w := &issuing{Issuer: s, client: client, probes: newProbes(s.Self), blocked: blocked{}, awaited: awaited{}}
	for pause := firstPause; ; {
		wanted, nodes, next := s.outcome.wanted()
		at, err := w.step(ctx, wanted, nodes)
		if err != nil && ctx.Err() == nil {
			logrus.WithField("component", "gateway-acme").WithError(err).Warn("trying again")
			at = time.Now().Add(pause)
			pause = min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
		var again <-chan time.Time
		if !at.IsZero() {
			again = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-next:
		}
	}
}

// wanted returns the certificates that are wanted, the servers' nodes, and a channel that is closed when they may be others.
func (o *outcome) wanted() ([]translate.Wanted, []*corev1.Node, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wantedByACME, o.nodes, o.told
}

// issuing is an Issuer that runs.
type issuing struct {
	Issuer
	client  kubernetes.Interface
	probes  probes
	account *acme.Account // nil before it is needed, and after an error
	ledger  *ledger       // nil before it was read, and after an error
	stale   bool          // another server may have left challenges
	blocked blocked
	awaited awaited
}

// step works on one certificate, if one is due, and returns when to go on without a change; the zero time if there is nothing to wait for.
func (w *issuing) step(ctx context.Context, wanted []translate.Wanted, nodes []*corev1.Node) (again time.Time, err error) {
	if len(wanted) == 0 {
		w.report(nil)
		return time.Time{}, nil
	}
	if err := w.open(ctx); err != nil {
		return time.Time{}, err
	}
	candidates := w.candidates(wanted)
	next, at, err := w.next(ctx, wanted, candidates)
	if err != nil {
		return time.Time{}, err
	}
	problems := w.problems(wanted, candidates)
	w.report(problems)
	if w.stale && (next < 0 || !w.ledger.book.Placed(candidates[next])) { // else the ACME server may be asking for them just now
		if err := w.present(ctx, nil); err != nil {
			return time.Time{}, err
		}
	}
	w.stale = false
	if next < 0 {
		if look := time.Now().Add(ledgerAge); len(problems) > 0 && at.After(look) {
			at = look
		}
		return at, nil
	}
	if err := w.order(ctx, candidates[next], wanted[next], nodes); err != nil {
		w.ledger = nil
		return time.Time{}, err
	}
	w.report(w.problems(wanted, candidates))
	return time.Now(), nil
}

// ledgerAge is how long it is relied on while something fails: people may delete it, so that everything is tried at once.
const ledgerAge = time.Minute

// open reads the ledger if that is needed.
func (w *issuing) open(ctx context.Context) (err error) {
	if w.ledger != nil && (len(w.ledger.book.Hosts) == 0 || time.Since(w.ledger.read) < ledgerAge) {
		return nil
	}
	w.stale = w.stale || w.ledger == nil
	if w.ledger, err = readLedger(ctx, w.client, w.ACME.Server); err != nil {
		return err
	}
	if !w.ledger.stored {
		w.account = nil
	}
	return nil
}

// candidates returns what may be ordered for what is wanted, in the same order.
func (w *issuing) candidates(wanted []translate.Wanted) (out []acme.Candidate) {
	for _, of := range wanted {
		c := acme.Candidate{Secret: of.Secret.String(), Namespace: of.Secret.Namespace, Hosts: of.Hosts, Leaf: of.Leaf}
		if c.Leaf != nil && (of.Issuer != w.ACME.Server || slices.ContainsFunc(of.Hosts, func(h string) bool { return of.Leaf.VerifyHostname(h) != nil })) {
			c.Leaf = nil
		}
		out = append(out, c)
	}
	return out
}

// maxTold is how many objects are told of a certificate.
const maxTold = 5

// tell sends an Event to those who want a certificate.
func (w *issuing) tell(ctx context.Context, of translate.Wanted, kind, reason, format string, values ...any) {
	source := corev1.EventSource{Component: "coracle-gateway", Host: w.Self}
	for _, owner := range of.Owners[:min(len(of.Owners), maxTold)] {
		if err := kube.SendEvent(ctx, w.client, source, owner, kind, reason, fmt.Sprintf(format, values...)); err != nil && ctx.Err() == nil {
			logrus.WithField("component", "gateway-acme").WithError(err).Warn("an Event is lost")
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// soon is how long before its end a certificate that is not renewed is a problem.
const soon = 10 * 24 * time.Hour

// problems returns what people are told about certificates that fail, or end soon.
func (w *issuing) problems(wanted []translate.Wanted, candidates []acme.Candidate) (out []Problem) {
	now := time.Now()
	for i, of := range wanted {
		why, again := w.ledger.book.Problem(candidates[i], now)
		if one, ok := w.blocked[candidates[i].Secret]; ok {
			why, again = one.why, one.until
		}
		text := ""
		if leaf := candidates[i].Leaf; leaf != nil && leaf.NotAfter.Sub(now) < soon && now.After(acme.Due(leaf).Add(time.Hour)) {
			text = fmt.Sprintf("the certificate of Secret %s ends at %s", of.Secret, clock(leaf.NotAfter))
		}
		switch {
		case why != "" && text != "":
			text += fmt.Sprintf(", and there is no new one: %s; it is tried again at %s", why, clock(again))
		case why != "":
			text = fmt.Sprintf("no certificate for Secret %s: %s; it is tried again at %s", of.Secret, why, clock(again))
		case text == "":
			continue
		}
		out = append(out, Problem{Kind: of.Owners[0].Kind, Name: of.Owners[0].Namespace + "/" + of.Owners[0].Name, Text: text})
	}
	return out
}

// report leaves problems for Status.
func (w *issuing) report(problems []Problem) {
	w.outcome.mu.Lock()
	same := slices.Equal(w.outcome.uncertified, problems)
	w.outcome.mu.Unlock()
	if !same {
		w.outcome.tell(func() { w.outcome.uncertified = problems })
	}
}
