package acme

import (
	"cmp"
	"crypto/x509"
	"slices"
	"time"
)

// Book is what must be known before the ACME server is asked for anything: what was asked lately and what came of it. All servers share it, so that
// neither a restart nor another leader asks more than is allowed. It is written before each order.
type Book struct {
	Directory string `json:"directory"`
	// Hosts are those that wait: of which an order has failed, or was made lately. Only an order adds some.
	Hosts map[string]Wait `json:"hosts,omitempty"`
	// Orders are the times of the last hour's orders, by namespace.
	Orders map[string][]time.Time `json:"orders,omitempty"`
	// Open is the order that is being worked on.
	Open *Open `json:"open,omitempty"`
	// Server is the wait for the ACME server itself, when it cannot be asked for anything.
	Server Wait `json:"server,omitzero"`
}

// Wait says when something may be asked again.
type Wait struct {
	Until    time.Time `json:"until"`
	Failures int       `json:"failures,omitempty"` // in a row
	Why      string    `json:"why,omitempty"`      // of the last failure, maxWhy at most
	Of       string    `json:"of,omitempty"`       // the namespace of the last order
}

// Open is an order that was begun, for a Secret NAMESPACE/NAME.
type Open struct {
	Secret string `json:"secret"`
	Order
}

// Candidate is a certificate that may be ordered.
type Candidate struct {
	Secret, Namespace string
	Hosts             []string
	Leaf              *x509.Certificate // that there is; nil if there is none that serves all the hosts
	Blocked           int               // certificates of the namespace that cannot be ordered: it comes after others by as many orders
}

// Due returns when a certificate is to be renewed: after two thirds of its life.
func Due(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 3 * 2)
}

// Next returns the certificate to order now, or the time at which to ask again; the zero time if there is nothing to wait for.
func (b *Book) Next(all []Candidate, now time.Time) (next *Candidate, at time.Time) {
	b.forget(now)
	var best time.Time
	for i, c := range all {
		due := b.due(c, now)
		switch {
		case due.After(now):
			if at.IsZero() || due.Before(at) {
				at = due
			}
		case next == nil || b.before(c, *next, due, best):
			next, best = &all[i], due
		}
	}
	return next, at
}

// before orders certificates that are due: that of the order which another server has placed and left, since another order would take its place, then
// renewals, then those of namespaces that have asked for less lately, then those that wait longer.
func (b *Book) before(c, than Candidate, due, thanDue time.Time) bool {
	if placed := b.Placed(c); placed != b.Placed(than) {
		return placed
	}
	if first := c.Leaf == nil; first != (than.Leaf == nil) {
		return !first
	}
	return cmp.Or(len(b.Orders[c.Namespace])+c.Blocked-len(b.Orders[than.Namespace])-than.Blocked, due.Compare(thanDue)) < 0
}

// due returns when a certificate may be ordered.
func (b *Book) due(c Candidate, now time.Time) time.Time {
	due, first := b.Server.Until, c.Leaf == nil
	if !first {
		due = later(due, Due(c.Leaf))
	}
	if b.Placed(c) {
		return due // it was counted when it was begun
	}
	for _, h := range c.Hosts {
		due = later(due, b.Hosts[h].Until)
	}
	var of, total []time.Time
	for namespace, times := range b.Orders {
		total = append(total, times...)
		if namespace == c.Namespace {
			of = times
		}
	}
	most := maxOrders
	if first {
		most = maxFirstOrders
	}
	if len(of) >= fewOrders {
		most -= ordersForFew
	}
	due = later(due, free(of, maxNamespaceOrders, now))
	return later(due, free(total, most, now))
}

// Placed reports whether the open order is this one, and the ACME server has it.
func (b *Book) Placed(c Candidate) bool {
	return b.Open != nil && b.Open.URL != "" && b.Open.Secret == c.Secret && slices.Equal(b.Open.Hosts, c.Hosts)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Begin writes down an order before it is placed. Its hosts wait as after a failure until Succeeded, so that a server that dies does not ask again
// at once. It returns the open order if this is the one.
func (b *Book) Begin(c Candidate, now time.Time) (*Order, error) {
	if b.Placed(c) {
		return &b.Open.Order, nil
	}
	order, err := NewOrder(c.Hosts)
	if err != nil {
		return nil, err
	}
	b.Open = &Open{c.Secret, *order}
	if b.Orders == nil {
		b.Orders = map[string][]time.Time{}
	}
	b.Orders[c.Namespace] = append(b.Orders[c.Namespace], now)
	for _, h := range c.Hosts {
		w := b.Hosts[h]
		w.Until, w.Of = now.Add(pause(w.Failures, firstWait, lastWait)), c.Namespace
		b.wait(h, w)
	}
	return &b.Open.Order, nil
}

// Alternative reports whether an order tries the other kind of challenge, as each second one after failures does: port 80 may not lead here.
func (b *Book) Alternative(c Candidate) bool {
	failures := b.Server.Failures
	for _, h := range c.Hosts {
		failures = max(failures, b.Hosts[h].Failures)
	}
	return failures%2 == 1
}

// Succeeded closes an order of which the certificate is stored.
func (b *Book) Succeeded(c Candidate, leaf *x509.Certificate, now time.Time) {
	b.Open, b.Server = nil, Wait{}
	for _, h := range c.Hosts {
		b.wait(h, Wait{Until: now.Add(min(afterSuccess, leaf.NotAfter.Sub(leaf.NotBefore)/2)), Of: c.Namespace})
	}
}

// Refused closes an order that the ACME server has refused, and returns when it may be tried again.
func (b *Book) Refused(c Candidate, why string, limited bool, now time.Time) (again time.Time) {
	b.Open, b.Server = nil, Wait{}
	for _, h := range c.Hosts {
		w := b.Hosts[h]
		wait := pause(w.Failures, firstWait, lastWait)
		if limited {
			wait = max(wait, limitedWait)
		}
		again = later(again, now.Add(wait))
		b.wait(h, Wait{Until: now.Add(wait), Failures: w.Failures + 1, Why: short(why), Of: c.Namespace})
	}
	return again
}

// Unreachable writes down that nothing can be asked, and returns when it may be tried again. The order stays open.
func (b *Book) Unreachable(c Candidate, why string, now time.Time) (again time.Time) {
	b.Server = Wait{Until: now.Add(pause(b.Server.Failures, firstServerTry, lastServerTry)), Failures: b.Server.Failures + 1, Why: short(why)}
	for _, h := range c.Hosts {
		if w, ok := b.Hosts[h]; ok { // Begin has it wait for longer
			w.Until = b.Server.Until
			b.wait(h, w)
		}
	}
	return b.Server.Until
}

// Problem returns why a certificate that is due is not there yet, and when it is tried again; "" if nothing has failed.
func (b *Book) Problem(c Candidate, now time.Time) (why string, again time.Time) {
	if c.Leaf != nil && now.Before(Due(c.Leaf)) {
		return "", time.Time{}
	}
	if b.Server.Why != "" {
		why, again = b.Server.Why, b.Server.Until
	}
	for _, h := range c.Hosts {
		if w := b.Hosts[h]; w.Why != "" && !w.Until.Before(again) {
			why, again = w.Why, w.Until
		}
	}
	return why, again
}

func (b *Book) wait(host string, w Wait) {
	if b.Hosts == nil {
		b.Hosts = map[string]Wait{}
	}
	b.Hosts[host] = w
}
