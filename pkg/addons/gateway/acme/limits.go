package acme

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Limits of what is asked, which are below those of Let's Encrypt (300 orders in 3 hours for an account, 5 failures in an hour for a host).
const (
	maxOrders          = 90 // in an hour
	maxFirstOrders     = 70 // of them for what is not a renewal, so that nobody's new hosts keep others' certificates from being renewed
	maxNamespaceOrders = 30 // in an hour
	maxHostsKept       = 2000

	firstWait      = 10 * time.Minute // after a failure of a host; it doubles with each
	lastWait       = 12 * time.Hour
	firstServerTry = time.Minute // after a failure of the ACME server
	lastServerTry  = time.Hour
	lookAgain      = time.Minute
	limitedWait    = time.Hour        // after the ACME server said that it was asked too often
	afterSuccess   = 10 * time.Minute // if Secrets are deleted, for example
)

// free returns when another order fits into an hour with so many.
func free(times []time.Time, most int, now time.Time) time.Time {
	if len(times) < most {
		return time.Time{}
	}
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	return times[len(times)-most].Add(time.Hour)
}

// forget drops what does not matter any more: a host's failures count until a day after it could have been tried again.
func (b *Book) forget(now time.Time) {
	for namespace, times := range b.Orders {
		times = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= time.Hour })
		if b.Orders[namespace] = times; len(times) == 0 {
			delete(b.Orders, namespace)
		}
	}
	maps.DeleteFunc(b.Hosts, func(_ string, w Wait) bool {
		return now.After(w.Until) && (w.Failures == 0 && w.Why == "" || now.Sub(w.Until) > 24*time.Hour) || fromTheFuture(w, now)
	})
	if fromTheFuture(b.Server, now) {
		b.Server = Wait{}
	}
	if over := len(b.Hosts) - maxHostsKept; over > 0 {
		oldest := slices.SortedFunc(maps.Keys(b.Hosts), func(x, y string) int { return b.Hosts[x].Until.Compare(b.Hosts[y].Until) })
		for _, h := range oldest[:over] {
			delete(b.Hosts, h)
		}
	}
}

// fromTheFuture reports whether a wait was written while the clock was far ahead.
func fromTheFuture(w Wait, now time.Time) bool { return w.Until.Sub(now) > 2*lastWait }

// pause returns the wait after so many failures before this one: it doubles up to a limit, with up to a fifth more so that not all ask at once.
func pause(failures int, first, last time.Duration) time.Duration {
	wait := min(first<<min(failures, 16), last)
	return wait + rand.N(wait/5+1)
}
