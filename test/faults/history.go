// Package faults breaks clusters while clients use them, and checks that no acknowledged write is lost and no read is
// stale.
//
// Clients on every host write and read ConfigMaps through the host's balancer (load.go) and record each request with
// its begin and end (history.go). Afterwards the histories are checked (check.go). The faults are a table in the test.
package faults

import (
	"slices"
	"sync"
	"time"
)

// kind is the kind of a request.
type kind int

const (
	write  kind = iota // of a register, whatever its value
	swap               // of a register, if it still has the value that was read before
	read               // of a register
	create             // of an object that is not changed afterwards
)

// op is one request to the API about one object.
type op struct {
	client string // the host it came from
	kind   kind
	key    string
	value  string // that was written, or that was read
	old    string // swap: the expected value of the register
	// revision is the object's resource version in the answer.
	revision int64
	// call and end are the times of the request and of its outcome at the client, since the history's begin.
	call, end time.Duration
	// acknowledged requests succeeded. All others may have happened or not, or may still happen.
	acknowledged bool
}

// writes reports whether an op may have changed a value.
func (o op) writes() bool { return o.kind != read }

// history records what clients observed. Any number of goroutines may add to it.
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

// all returns all ops so far, ordered by their end.
func (h *history) all() []op {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.ops)
	slices.SortStableFunc(out, func(a, b op) int { return int(a.end - b.end) })
	return out
}

// gap is the longest time in which no request of some clients succeeded.
type gap struct{ from, to time.Duration }

func (g gap) length() time.Duration { return g.to - g.from }

// longestGap returns the longest time between from and to in which no request of the given kind succeeded. The ops are
// ordered by their end.
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
