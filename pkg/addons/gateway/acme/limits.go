package acme

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what is asked, which are below those of Let's Encrypt (300 orders in 3 hours for an account, 5 failures in an hour for a host).
const (
	maxOrders          = 90 // in an hour
	maxFirstOrders     = 70 // of them for what is not a renewal, so that nobody's new hosts keep others' certificates from being renewed
	maxNamespaceOrders = 30 // in an hour
	fewOrders          = 3  // in an hour: a namespace with fewer gets the last ones, so that some that want many take none from the others
	ordersForFew       = 15
	maxHostsKept       = 1000 // with maxWhy they fit into a Secret, of 1 MiB at most
	maxWhy             = 400  // bytes in JSON

	firstWait      = 10 * time.Minute // after a failure of a host; it doubles with each
	lastWait       = 12 * time.Hour
	firstServerTry = time.Minute // after a failure of the ACME server
	lastServerTry  = time.Hour
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
		times = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= time.Hour || t.Sub(now) > time.Minute }) // or from a clock that was ahead
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
	b.fit()
}

// fit drops hosts that are too many, each from the namespace that has the most: its soonest one.
func (b *Book) fit() {
	if len(b.Hosts) <= maxHostsKept {
		return
	}
	of := map[string][]string{}
	for _, h := range slices.SortedFunc(maps.Keys(b.Hosts), func(x, y string) int { return b.Hosts[x].Until.Compare(b.Hosts[y].Until) }) {
		of[b.Hosts[h].Of] = append(of[b.Hosts[h].Of], h)
	}
	for len(b.Hosts) > maxHostsKept {
		most := ""
		for namespace, hosts := range of {
			if len(hosts) > len(of[most]) {
				most = namespace
			}
		}
		delete(b.Hosts, of[most][0])
		of[most] = of[most][1:]
	}
}

// short cuts a text to maxWhy bytes, as JSON has them: a character that it escapes takes six.
func short(why string) string {
	size := 0
	for at, r := range why {
		switch {
		case r < ' ' || strings.ContainsRune("\"\\<>&\u2028\u2029\ufffd\x7f", r):
			size += 6
		default:
			size += utf8.RuneLen(r)
		}
		if size > maxWhy {
			return why[:at]
		}
	}
	return why
}

// fromTheFuture reports whether a wait was written while the clock was far ahead.
func fromTheFuture(w Wait, now time.Time) bool { return w.Until.Sub(now) > 2*lastWait }

// pause returns the wait after so many failures before this one: it doubles up to a limit, with up to a fifth more so that not all ask at once.
func pause(failures int, first, last time.Duration) time.Duration {
	wait := min(first<<min(failures, 16), last)
	return wait + rand.N(wait/5+1)
}
