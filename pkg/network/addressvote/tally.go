package addressvote

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Tally is a node's count of the votes that it has. It is not safe for concurrent use.
type Tally struct {
	servers map[string]*ballots
}

// ballots are the votes of one server.
type ballots struct {
	until    map[netip.Addr]time.Time
	guarded  map[netip.Addr]bool
	ports    map[netip.Addr][]string
	seq      uint64    // of the last Beat that was answered
	answered time.Time // when that Beat was sent
}

// SetServers sets the servers of the cluster that vote.
func (t *Tally) SetServers(names []string) {
	if t.servers == nil {
		t.servers = map[string]*ballots{}
	}
	maps.DeleteFunc(t.servers, func(name string, _ *ballots) bool { return !slices.Contains(names, name) })
	for _, name := range names {
		if t.servers[name] == nil {
			t.servers[name] = &ballots{until: map[netip.Addr]time.Time{}, guarded: map[netip.Addr]bool{}}
		}
	}
}

// Count takes a server's answer to a Beat that was sent at a time.
func (t *Tally) Count(server string, b Ballot, sent time.Time) {
	s := t.servers[server]
	if s == nil || b.Seq <= s.seq {
		return
	}
	s.seq, s.answered = b.Seq, sent
	clear(s.until)
	for _, a := range b.Votes {
		s.until[a] = sent.Add(Term - margin)
		s.guarded[a] = slices.Contains(b.Guarded, a)
	}
	s.ports = b.Ports
}

// Keep renews the votes of a server that refused a connection at a time, or was starting: it does not run, so it votes for nobody else, and when it
// does it begins with Grace. The data plane must not depend on a restart of the control plane.
func (t *Tally) Keep(server string, at time.Time) {
	s := t.servers[server]
	if s == nil {
		return
	}
	for a, until := range s.until {
		if at.Before(until) {
			s.until[a] = at.Add(Term - margin)
		}
	}
	if at.Sub(s.answered) < Term {
		s.answered = at
	}
}

// Yield drops the votes for an address. Answers to Beats before the next one do not count any more.
func (t *Tally) Yield(a netip.Addr, seq uint64) {
	for _, s := range t.servers {
		delete(s.until, a)
		s.seq = max(s.seq, seq)
	}
}

// Held returns the addresses for which more than half of the servers have valid votes, sorted, and those of them that are guarded.
func (t *Tally) Held(now time.Time) (held []netip.Addr, guarded map[netip.Addr]bool) {
	count, guarded := map[netip.Addr]int{}, map[netip.Addr]bool{}
	for _, s := range t.servers {
		for a, until := range s.until {
			if now.Before(until) {
				count[a]++
				guarded[a] = guarded[a] || s.guarded[a]
			}
		}
	}
	for a, n := range count {
		if t.isMajority(n) {
			held = append(held, a)
		}
	}
	slices.SortFunc(held, netip.Addr.Compare)
	return held, guarded
}

// Ports returns the ports at which a held address of a Gateway is served, sorted: those that any server names, as servers learn of changes one after
// another. ok is false for the address of a Service.
func (t *Tally) Ports(a netip.Addr, now time.Time) (all []string, ok bool) {
	for _, s := range t.servers {
		if ports, local := s.ports[a]; local && now.Before(s.until[a]) {
			all, ok = append(all, ports...), true
		}
	}
	slices.Sort(all)
	return slices.Compact(all), ok
}

// Majority reports whether more than half of the servers have answered within the last Term.
func (t *Tally) Majority(now time.Time) bool {
	n := 0
	for _, s := range t.servers {
		if now.Sub(s.answered) < Term {
			n++
		}
	}
	return t.isMajority(n)
}

// Answers reports whether a server has answered within the last Term.
func (t *Tally) Answers(server string, now time.Time) bool {
	s := t.servers[server]
	return s != nil && now.Sub(s.answered) < Term
}

func (t *Tally) isMajority(n int) bool { return n > 0 && 2*n > len(t.servers) }
