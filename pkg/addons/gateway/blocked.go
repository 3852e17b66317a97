package gateway

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/acme"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// blocked are the certificates, by Secret, whose Secrets others have made. They are looked at again, because people may delete the Secrets. A namespace can
// have any number of them: they are in memory only, and take no order.
type blocked map[string]block

type block struct {
	namespace, why string
	until          time.Time
}

// Times after which a Secret of others is looked at again: longer for a namespace that has many.
const (
	lookAgain   = time.Minute
	fewBlocked  = 20
	longestLook = 12 * time.Hour
)

// add notes a certificate, and returns when to look again, and whether people do not know yet.
func (b blocked) add(c acme.Candidate, why string, now time.Time) (again time.Time, news bool) {
	again = now.Add(min(lookAgain*time.Duration(1+c.Blocked/fewBlocked), longestLook))
	news = b[c.Secret].why != why
	b[c.Secret] = block{c.Namespace, why, again}
	return again, news
}

// keep drops those that nobody wants any more.
func (b blocked) keep(all []acme.Candidate) {
	wanted := map[string]bool{}
	for _, c := range all {
		wanted[c.Secret] = true
	}
	maps.DeleteFunc(b, func(secret string, _ block) bool { return !wanted[secret] })
}

// next returns the number of the certificate to order now, or -1 and when to ask again. It tells people of those that are blocked.
func (w *issuing) next(ctx context.Context, wanted []translate.Wanted, candidates []acme.Candidate) (number int, at time.Time, err error) {
	w.blocked.keep(candidates)
	w.awaited.dial(ctx, w.probes, wanted)
	for {
		now, number := time.Now(), map[string]int{}
		var free []acme.Candidate
		var look time.Time
		count := map[string]int{}
		for _, one := range w.blocked {
			count[one.namespace]++
		}
		for i, c := range candidates {
			until := w.blocked[c.Secret].until
			if w.awaited.any(wanted[i].Addresses, now) && !until.After(now) {
				until = now.Add(dialAgain)
			}
			if until.After(now) {
				if look.IsZero() || until.Before(look) {
					look = until
				}
				continue
			}
			number[c.Secret], c.Blocked = i, count[c.Namespace]
			free = append(free, c)
		}
		c, at := w.ledger.book.Next(free, now)
		if c == nil {
			if at.IsZero() || !look.IsZero() && look.Before(at) {
				at = look
			}
			return -1, at, nil
		}
		i := number[c.Secret]
		_, err := find(ctx, w.client, wanted[i].Secret)
		switch {
		case err == nil:
			delete(w.blocked, c.Secret)
			return i, at, nil
		case !errors.As(err, new(notOursError)):
			return -1, at, err
		}
		why := acme.Sentence(err) // cut: the type of a Secret can have any length
		if again, news := w.blocked.add(*c, why, now); news {
			w.failed(ctx, *c, wanted[i], why, again)
		}
	}
}
