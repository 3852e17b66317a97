package logs

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// The size of the ring on disk: the file that is written to, and the full ones.
const (
	ringFile  = 2 << 20
	ringFiles = 8
)

// How soon lines are on the disk for good, so that a power loss spares them: those that tell of an error, and others.
// Nothing is written, and nothing wakes up, while nothing is logged.
const (
	syncAlarming = 100 * time.Millisecond
	syncOther    = 5 * time.Second
)

// maxQueued is how many bytes of lines may wait for a disk that takes none.
const maxQueued = 4 << 20

// Ring keeps the last lines of log on disk: some MiB, the oldest go first. Nobody ever waits for it, and what goes
// wrong with the disk stops nothing: lines that it did not take are counted, and the next one that it takes says so.
// Write it only through Line; read it with Read, also while it is written.
type Ring struct {
	// Clean takes out of a line what must not be kept. It is set before the first Line; nil takes out nothing.
	Clean func(string) string

	file *File
	sync func() error // file.Sync; replaced by tests

	mu     sync.Mutex
	queue  []string
	queued int       // bytes in queue
	lost   int       // lines since the last one that was written
	due    time.Time // when the next sync is; zero if there is nothing to sync
	timer  *time.Timer
	wake   chan struct{}
	closed bool
	done   chan struct{}
}

// OpenRing returns the ring with its newest file at path. Older ones have .1, .2 and so on behind that name.
func OpenRing(path string) *Ring {
	r := &Ring{
		file: &File{Path: path, Max: ringFile, Keep: ringFiles - 1},
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	r.sync = r.file.Sync
	go r.write()
	return r
}

// Line takes one line, which has no end yet.
func (r *Ring) Line(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return
	case r.queued+len(text) > maxQueued:
		r.lost++
		return
	}
	r.queue = append(r.queue, text)
	r.queued += len(text) + 1
	r.poke()
}

// Close writes what has been taken so far, and makes sure that it is on the disk. Later lines are dropped.
func (r *Ring) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		r.poke()
	}
	r.mu.Unlock()
	<-r.done
}

func (r *Ring) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // it is about to look
	}
}

// write takes lines to the file, as many at once as have come.
func (r *Ring) write() {
	defer close(r.done)
	for range r.wake {
		r.mu.Lock()
		lines, lost, closed := r.queue, 0, r.closed
		r.queue, r.queued = nil, 0
		if len(lines) > 0 { // only then it is told
			lost, r.lost = r.lost, 0
		}
		r.mu.Unlock()

		r.store(lines, lost)
		if closed {
			_ = r.sync() // nobody could be told
			_ = r.file.Close()
			return
		}
	}
}

func (r *Ring) store(lines []string, lost int) {
	if len(lines) == 0 {
		return
	}
	var b strings.Builder
	if lost > 0 {
		note, _ := Text{}.Format(&logrus.Entry{Time: time.Now(), Level: logrus.WarnLevel,
			Message: fmt.Sprintf("%d lines are missing here: the disk did not take them", lost)})
		b.Write(note)
	}
	alarming := false
	for _, line := range lines {
		if r.Clean != nil {
			line = r.Clean(line)
		}
		alarming = alarming || Alarming(line)
		b.WriteString(line + "\n")
	}
	if _, err := r.file.Write([]byte(b.String())); err != nil {
		r.mu.Lock()
		r.lost += lost + len(lines)
		r.mu.Unlock()
		_ = r.file.Close() // the next line tries again from the start
		return
	}
	r.syncIn(alarming)
}

// syncIn sees to it that what has been written is synced, soon if it is alarming. It happens beside the writing, since
// it may take seconds.
func (r *Ring) syncIn(alarming bool) {
	delay := syncOther
	if alarming {
		delay = syncAlarming
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Now().Add(delay)
	switch {
	case r.due.IsZero():
		r.due = at
		r.timer = time.AfterFunc(delay, func() {
			r.mu.Lock()
			r.due = time.Time{}
			r.mu.Unlock()
			_ = r.sync() // nobody could be told
		})
	case at.Before(r.due):
		r.due = at
		r.timer.Reset(delay)
	}
}
