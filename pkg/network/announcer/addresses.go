package announcer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/addressvote"
)

// placed is an address on an interface of this machine.
type placed struct {
	place
	since time.Time
	told  int // gratuitous announcements so far
	// adopted is set for an address that was there when this process started, until the votes are counted.
	adopted bool
	probed  time.Time // when it was last looked for other machines that have it
	warned  time.Time // of one, last
}

// apply adds and removes addresses so that this machine has those that the votes give it.
func (r *running) apply(ctx context.Context) {
	now := time.Now()
	held, ofPool := r.tally.Held(now)
	for address, p := range r.has {
		if slices.Contains(held, address) {
			if p.adopted {
				p.adopted, p.told = false, 0
			}
			continue
		}
		if p.adopted && now.Sub(p.since) < addressvote.Term && !r.tally.Majority(now) {
			continue // the servers have not answered yet
		}
		r.remove(address, p, "the servers do not vote for this node any more")
		r.yield(address)
	}
	wanted := r.guardedAddresses(held, ofPool, now)
	guardErr := r.guard.set(ctx, r.log, wanted, r.tasks.Go)
	for i, address := range held {
		err := guardErr
		if r.guard.covers(wanted[i]) {
			err = nil // whatever becomes of the others
		} else if errors.Is(err, errWriting) {
			continue // it is announced after that
		}
		now = time.Now() // each address takes time, in which votes expire
		if still, _ := r.tally.Held(now); r.has[address] == nil && slices.Contains(still, address) {
			r.add(address, now, err)
		}
	}
}

// guardedAddresses are held addresses, in their order, with what is open at them.
func (r *running) guardedAddresses(held []netip.Addr, ofPool map[netip.Addr]bool, now time.Time) (all []guarded) {
	for _, address := range held {
		g := guarded{Addr: address}
		if ports, local := r.tally.Ports(address, now); local {
			g.local, g.ports = true, portRules(ports)
		} else if !ofPool[address] {
			g.local, g.ports = true, []string{fmt.Sprintf("tcp dport %d", r.APIPort)}
		}
		all = append(all, g)
	}
	return all
}

// retry is after how long it is tried again to announce an address that this node could not.
const retry = 30 * time.Second

// yield promises the servers that earlier votes for an address are not used.
func (r *running) yield(address netip.Addr) {
	r.tally.Yield(address, r.seq)
	r.yields = append(r.yields, address)
}

// add puts an address on an interface and announces it, unless there is an error already.
func (r *running) add(address netip.Addr, now time.Time, err error) {
	told := err != nil // by the guard
	var at place
	if err == nil {
		at, err = placeFor(address, r.IPs)
	}
	if err == nil {
		err = at.set()
	}
	if err != nil {
		if !told {
			r.log.WithError(err).Errorf("this node cannot announce %s", address)
		}
		r.refuses[address] = now.Add(retry)
		r.yield(address)
		return
	}
	p := &placed{place: at, since: now}
	r.has[address] = p
	r.log.Infof("announcing %s on %s", address, at.link.Attrs().Name)
	r.tell(address, p)
}

// The gratuitous announcements of an address, in Beats after the first: some neighbours drop a packet or ignore one that comes too soon.
var repeats = [...]int{0, 1, 2, 5, 12}

// renew renews what the kernel would remove, and repeats announcements. An address that cannot be renewed where it is moves to the interface that it belongs
// to now, or to another node if there is none.
func (r *running) renew() {
	held, _ := r.tally.Held(time.Now())
	for address, p := range r.has {
		if p.adopted || !slices.Contains(held, address) {
			continue
		}
		if err := p.set(); err != nil { // its interface may have been removed, and be back as another one
			r.log.WithError(err).Warnf("renewing address %s", address)
			delete(r.has, address)
			_ = p.unset() // another node may get it
			r.add(address, time.Now(), nil)
			continue
		}
		r.tell(address, p)
	}
}

// tell announces an address to the neighbours if it is time to.
func (r *running) tell(address netip.Addr, p *placed) {
	beats := int(time.Since(p.since) / addressvote.Interval)
	if p.told >= len(repeats) || beats < repeats[p.told] {
		return
	}
	p.told++
	if err := p.announce(address); err != nil {
		r.log.WithError(err).Warnf("announcing %s to the neighbours", address)
	}
}

func (r *running) remove(address netip.Addr, p *placed, why string) {
	delete(r.has, address)
	if err := p.unset(); err != nil {
		r.log.WithError(err).Warnf("removing address %s, which the kernel does by itself in %d s", address, lifetime)
	}
	r.log.Infof("announcing %s no more: %s", address, why)
}
