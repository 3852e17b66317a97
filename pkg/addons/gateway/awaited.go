package gateway

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// awaited are the addresses that Gateways have for themselves, with the times since when connections to them are tried; the zero time once one was accepted.
// An address is in a Gateway's status before a server carries it, and an ACME server that cannot connect yet would have its hosts wait for long.
type awaited map[netip.Addr]time.Time

// Times of an address that is awaited.
const (
	dialAgain   = 2 * time.Second
	longestDial = time.Second
	dialsAtOnce = 16          // others have their turn 2 s later, in no order: nobody's addresses hold up what others order
	longestFor  = time.Minute // then the ACME server is asked anyway: it may reach what this server does not
)

// dial tries the addresses of what is wanted that have not accepted a connection yet, and forgets those of what is not wanted any more.
func (a awaited) dial(ctx context.Context, p probes, all []translate.Wanted) {
	wanted := map[netip.Addr]bool{}
	for _, w := range all {
		for _, address := range w.Addresses {
			wanted[address] = true
		}
	}
	for address := range a {
		if !wanted[address] {
			delete(a, address)
		}
	}
	try, cancel := context.WithTimeout(ctx, longestDial)
	defer cancel()
	accepted, dials := make(chan netip.Addr, dialsAtOnce), sync.WaitGroup{}
	tried := 0
	for address := range wanted {
		since, known := a[address]
		if !known {
			since = time.Now()
			a[address] = since
		}
		if since.IsZero() || time.Since(since) > longestFor || tried == dialsAtOnce {
			continue
		}
		tried++
		dials.Go(func() {
			if _, err := p.open(try, address.String(), false); err == nil {
				accepted <- address
			}
		})
	}
	dials.Wait()
	close(accepted)
	for address := range accepted {
		a[address] = time.Time{}
	}
}

// any reports whether one of the addresses is to be awaited.
func (a awaited) any(addresses []netip.Addr, now time.Time) bool {
	return slices.ContainsFunc(addresses, func(address netip.Addr) bool {
		since := a[address]
		return !since.IsZero() && now.Sub(since) <= longestFor
	})
}
