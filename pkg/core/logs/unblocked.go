package logs

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// maxUnread bounds the bytes that wait for the reader of an Unblocked.
const maxUnread = 1 << 20

// Unblocked writes lines to an output that may block for ever, such as a pipe that nobody reads, or a terminal after Ctrl-S. Its callers never
// wait: it keeps a megabyte for the reader, and drops what comes then.
type Unblocked struct {
	To io.Writer
	// Missing returns the lines that replace a number of lines that were dropped; nil replaces them by nothing.
	Missing func(lines int) string

	mu      sync.Mutex
	queue   []byte
	dropped int // lines after queue
	writing bool
	idle    []chan struct{} // closed when everything is written
}

// Write implements io.Writer. It keeps or drops data as a whole.
func (u *Unblocked) Write(data []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dropped > 0 || len(u.queue)+len(data) > maxUnread {
		u.dropped += max(1, bytes.Count(data, []byte("\n")))
	} else {
		u.queue = append(u.queue, data...)
	}
	if !u.writing {
		u.writing = true
		go u.write()
	}
	return len(data), nil
}

// write writes until nothing is left.
func (u *Unblocked) write() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.queue) > 0 || u.dropped > 0 {
		data := u.queue
		if u.dropped > 0 && u.Missing != nil {
			data = append(data, u.Missing(u.dropped)...)
		}
		u.queue, u.dropped = nil, 0
		u.mu.Unlock()
		_, _ = u.To.Write(data) // there is nowhere to report an error
		u.mu.Lock()
	}
	u.writing = false
	for _, c := range u.idle {
		close(c)
	}
	u.idle = nil
}

// Flush waits until everything is written, at most for d, and reports whether it is.
func (u *Unblocked) Flush(d time.Duration) bool {
	u.mu.Lock()
	written := make(chan struct{})
	if u.writing {
		u.idle = append(u.idle, written)
	} else {
		close(written)
	}
	u.mu.Unlock()
	select {
	case <-written:
		return true
	case <-time.After(d):
		return false
	}
}
