package logs

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// The size of each file of the ring in bytes, and the number of its files.
const (
	ringFile  = 2 << 20
	ringFiles = 8
)

// The time after which lines are synced, so that they survive a power loss: alarming lines, and others. There are no syncs
// and no wake-ups while nothing is logged.
const (
	syncAlarming = 100 * time.Millisecond
	syncOther    = 5 * time.Second
)

// maxQueued bounds the bytes of lines that wait for the disk.
const maxQueued = 4 << 20

// Ring keeps the last 16 MiB of log lines on disk. Callers never wait for the disk. Lines that could not be written are
// counted, and a line with their number follows when writing works again. Read reads a ring, even while it is written.
type Ring struct {
	// Clean removes secrets from a line. It is set before the first Line; nil changes nothing.
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

// OpenRing returns the ring whose newest file is path. Older files are path.1, path.2 and so on.
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

// Line adds a line, which must not contain a newline.
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

// Close writes and syncs all lines. Later ones are dropped.
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
	default: // write is woken already
	}
}

// write writes the queue to the file whenever it is woken.
func (r *Ring) write() {
	defer close(r.done)
	for range r.wake {
		r.mu.Lock()
		lines, lost, closed := r.queue, 0, r.closed
		r.queue, r.queued = nil, 0
		if len(lines) > 0 { // only then store can write their number
			lost, r.lost = r.lost, 0
		}
		r.mu.Unlock()

		r.store(lines, lost)
		if closed {
			_ = r.sync() // there is nowhere to report an error
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
			Message: fmt.Sprintf("%d lines are missing here: writing to the disk failed", lost)})
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
		_ = r.file.Close() // it is opened again for the next line
		return
	}
	r.syncIn(alarming)
}

// syncIn schedules a sync, soon if alarming is true. The sync runs in its own goroutine, because it may take seconds.
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
			_ = r.sync() // there is nowhere to report an error
		})
	case at.Before(r.due):
		r.due = at
		r.timer.Reset(delay)
	}
}
