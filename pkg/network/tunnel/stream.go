package tunnel

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// stream is a stream whose Close also ends pending reads and releases what the peer still sends, as that of a net.Conn does. The
// multiplexer's Close ends one direction only, and keeps the other's buffer until the peer closes too.
type stream struct {
	*yamux.Stream
	guard   *guard
	id      uint32
	reading sync.Mutex
	closed  atomic.Bool

	// Of the allowance.
	unread  int       // bytes
	peak    int       // the most unread bytes since the buffer was empty and released
	since   time.Time // when it was read last, or when the first of the unread bytes came
	stalled bool      // it was closed because it was not read
}

// errStalled is the error of a stream that was closed to make room for others.
var errStalled = errors.New("the connection through the node's tunnel was closed, because its data was not read while others needed the room")

// Read reads from the stream, unless it is closed.
func (s *stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.closed.Load() {
		return 0, s.guard.allowance.reason(s)
	}
	n, err := s.read(p)
	if err != nil && s.closed.Load() {
		err = s.guard.allowance.reason(s)
	}
	return n, err
}

func (s *stream) read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.guard.allowance.release(s, n)
	return n, err
}

// Close ends both directions.
func (s *stream) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	_ = s.SetReadDeadline(time.Unix(1, 0))
	err := s.Stream.Close()
	go s.drain()
	return err
}

// drain reads until the peer has closed the stream too.
func (s *stream) drain() {
	s.reading.Lock() // a pending Read ends because of the deadline
	defer s.reading.Unlock()
	_ = s.SetReadDeadline(time.Now().Add(2 * closeTimeout)) // after closeTimeout the multiplexer ends it
	_, _ = io.Copy(io.Discard, reader(s.read))
	s.guard.forget(s)
}

// reader is a function that reads.
type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// allowance limits the memory in which the sessions of one peer buffer what is not read yet. A stream keeps the memory of its peak, and the
// multiplexer's buffers are up to twice as large as their content.
type allowance struct {
	mu      sync.Mutex
	held    int                  // the sum of all peaks
	filled  time.Time            // when held reached maxHeld last, or a stream was closed because it was not read
	streams map[*stream]struct{} // those with a peak
	changed chan struct{}        // closed when a stream was read; nil if no goroutine waits
}

const (
	// maxWindow is the most that a peer may send on one stream before it is read, in bytes.
	maxWindow = 512 << 10
	// maxHeld is the allowance in bytes; a frame may exceed it by maxWindow. It is the room of three streams that are not read at all.
	maxHeld = 3 * maxWindow
	// stallTimeout is how long a stream may be unread while the allowance is used up. Meanwhile all streams of the peer wait. The time before does not
	// count, as then the stream was in nobody's way.
	stallTimeout = time.Second
	// closeTimeout is how long the peer has to close a stream that this end has closed.
	closeTimeout = 10 * time.Second
)

func newAllowance() *allowance { return &allowance{streams: map[*stream]struct{}{}} }

// hold notes that n bytes come for a stream, which is nil if it has ended: the multiplexer drops the bytes then.
func (a *allowance) hold(s *stream, n int) {
	if s == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.unread == 0 {
		s.since = time.Now()
	}
	if s.unread += n; s.unread > s.peak {
		before := a.held
		a.held += s.unread - s.peak
		s.peak = s.unread
		a.streams[s] = struct{}{}
		if before < maxHeld && a.held >= maxHeld {
			a.filled = time.Now()
		}
	}
}

// release notes that n bytes of a stream were read.
func (a *allowance) release(s *stream, n int) {
	if n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.unread -= n
	s.since = time.Now()
	a.notify()
}

// forget forgets a stream, which has ended or whose buffer was released.
func (a *allowance) forget(s *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(s)
	a.notify()
}

// drop forgets a stream's peak. mu is held.
func (a *allowance) drop(s *stream) {
	a.held -= s.peak
	s.peak, s.unread = 0, 0
	delete(a.streams, s)
}

// notify wakes the goroutines that wait. mu is held.
func (a *allowance) notify() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// accept completes a stream that the peer opened.
func (a *allowance) accept(s *stream, m *yamux.Stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Stream = m
}

// reason returns why a stream is closed.
func (a *allowance) reason(s *stream) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.stalled {
		return errStalled
	}
	return net.ErrClosed
}

// wait waits until there is room for another frame. It closes streams that are not read.
func (a *allowance) wait(done <-chan struct{}) {
	for {
		changed, empty, stalled, left := a.full()
		if changed == nil {
			return
		}
		if len(empty) > 0 {
			for s, since := range empty {
				s.Shrink()
				a.shrunk(s, since)
			}
			continue
		}
		if stalled != nil {
			go stalled.Close()
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-done:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// shrunk notes that the buffer of a stream was released, unless data came since the stream was empty.
func (a *allowance) shrunk(s *stream, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.unread == 0 && s.since.Equal(since) {
		a.drop(s)
		a.notify()
	}
}

// full says what makes room if the allowance is used up. These are the empty streams, with the time of their last data, which the caller has to shrink.
// Without any it is a channel that is closed when a stream was read, the stream that is to be closed as it was not read for stallTimeout, and the time
// until the next one may be that. Without a channel there is room.
func (a *allowance) full() (changed <-chan struct{}, empty map[*stream]time.Time, stalled *stream, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held < maxHeld {
		return nil, nil, nil, 0
	}
	empty = map[*stream]time.Time{}
	var oldest *stream
	for s := range a.streams {
		switch {
		case s.Stream == nil: // not accepted yet
		case s.unread == 0:
			empty[s] = s.since
		case s.stalled: // being drained
		case oldest == nil || s.since.Before(oldest.since):
			oldest = s
		}
	}
	left = stallTimeout
	if oldest != nil && len(empty) == 0 {
		since := oldest.since
		if since.Before(a.filled) {
			since = a.filled
		}
		if left = stallTimeout - time.Since(since); left <= 0 {
			oldest.stalled, stalled, left = true, oldest, stallTimeout
			a.filled = time.Now() // the others wait for what this one makes free
		}
	}
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed, empty, stalled, left
}
