package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// limits count what clients ask for.
type limits struct {
	rules gateway.Limits
	now   func() time.Time

	mu     sync.Mutex
	rates  []recent
	served map[netip.Prefix]int // requests that are being served
}

// recent has for each client when all that it has asked for would be in its time. What the clients of long ago asked for is forgotten.
type recent struct{ young, old map[netip.Prefix]time.Time }

// maxClients is how many clients are remembered for a rate, before those are forgotten that have not come for as long. A client is forgotten
// early if so many others come, which it cannot bring about alone.
const maxClients = 8192

func newLimits(rules gateway.Limits, before *limits) *limits {
	if before != nil && slices.Equal(before.rules.Rates, rules.Rates) && before.rules.Concurrent == rules.Concurrent {
		return before
	}
	return &limits{rules: rules, now: time.Now, rates: make([]recent, len(rules.Rates)), served: map[netip.Prefix]int{}}
}

func (l *limits) enter(from netip.Addr) (leave func(), instead *Answer) {
	client := gateway.Network(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	leave = func() {}
	now := l.now()
	for i, rate := range l.rules.Rates {
		step := rate.Per / time.Duration(max(1, rate.Requests))
		if due := l.rates[i].due(client); due.Sub(now) > step*time.Duration(rate.Burst) {
			return leave, tooMany()
		}
	}
	if l.rules.Concurrent > 0 && l.served[client] >= l.rules.Concurrent {
		return leave, tooMany()
	}
	for i, rate := range l.rules.Rates { // only what is served counts
		due := l.rates[i].due(client)
		if due.Before(now) {
			due = now
		}
		l.rates[i].set(client, due.Add(rate.Per/time.Duration(max(1, rate.Requests))))
	}
	if l.rules.Concurrent == 0 {
		return leave, nil
	}
	l.served[client]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.served[client]--; l.served[client] <= 0 {
			delete(l.served, client)
		}
	}, nil
}

func tooMany() *Answer {
	a := refuse(http.StatusTooManyRequests, "too many requests\n")
	a.Header.Set("Retry-After", "1")
	return a
}

func (r *recent) due(client netip.Prefix) time.Time {
	if due, ok := r.young[client]; ok {
		return due
	}
	return r.old[client]
}

func (r *recent) set(client netip.Prefix, due time.Time) {
	if r.young == nil || len(r.young) >= maxClients {
		r.young, r.old = map[netip.Prefix]time.Time{}, r.young
	}
	r.young[client] = due
}
