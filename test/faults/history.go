// Package faults breaks clusters while clients use them, and finds out whether they lost anything that they had
// acknowledged or showed anybody the past.
//
// Clients on every host write and read ConfigMaps through the host's balancer (load.go) and note each request with
// its begin and end (history.go). Afterwards the histories are checked (check.go). What is broken is a table in the
// test.
package faults

import (
	"slices"
	"sync"
	"time"
)

// kind is what a request was about.
type kind int

const (
	write  kind = iota // of a register, whatever it held
	swap               // of a register, if it still held what was read before
	read               // of a register
	create             // of an object that is never touched again
)

// op is one request to the API about one object.
type op struct {
	client string // the host it came from
	kind   kind
	key    string
	value  string // that was written, or was read
	old    string // swap: what the register held
	// revision is the object's, as the answer told it.
	revision int64
	// call and end are when the request began and when the client was told its outcome, since the history's begin.
	call, end time.Duration
	// acknowledged requests were answered with success. All others may have happened or not, or may happen yet.
	acknowledged bool
}

// writes reports whether an op may have changed something.
func (o op) writes() bool { return o.kind != read }

// history is what clients saw. Any number of goroutines may add to it.
type history struct {
	began time.Time

	mu  sync.Mutex
	ops []op
}

func newHistory() *history { return &history{began: time.Now()} }

// now is the time since the history's begin.
func (h *history) now() time.Duration { return time.Since(h.began) }

func (h *history) add(ops ...op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, ops...)
}

// all returns what was added so far, in the order of the requests' ends.
func (h *history) all() []op {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.ops)
	slices.SortStableFunc(out, func(a, b op) int { return int(a.end - b.end) })
	return out
}

// gap is the longest time in which none of some clients' requests succeeded.
type gap struct{ from, to time.Duration }

func (g gap) length() time.Duration { return g.to - g.from }

// longestGap returns the longest time between from and to in which no request of the wanted kind succeeded. The ops
// are in the order of their ends.
func longestGap(ops []op, from, to time.Duration, wanted func(op) bool) gap {
	longest, last := gap{from, from}, from
	note := func(at time.Duration) {
		if at-last > longest.length() {
			longest = gap{last, at}
		}
		last = at
	}
	for _, o := range ops {
		if o.acknowledged && o.end >= from && o.end <= to && wanted(o) {
			note(o.end)
		}
	}
	note(to)
	return longest
}
