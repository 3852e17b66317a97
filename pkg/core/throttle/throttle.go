// Package throttle lets a process that copies large files in the background leave the disk and the processors to others.
package throttle

import (
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	piece = 128 << 10 // bytes that are read in one go
	// catchUp is how much lost time may be caught up on, as timers fire late.
	catchUp = 100 * time.Millisecond
	// writebackEvery is the time between two looks for data that is not on the disk yet.
	writebackEvery = 50 * time.Millisecond
)

// Limit is how fast each of its readers, writers and connections may be. A nil Limit is none.
type Limit struct{ bytesPerSecond int64 }

// New returns a limit. Until end is called, what is written to files in the directories goes to the disk at once: a sync of another process on the same file
// system, as etcd's, then waits for little of it.
func New(bytesPerSecond int64, dirs ...string) (l *Limit, end func()) {
	began, ended := time.Now(), make(chan struct{})
	go func() {
		ticker := time.NewTicker(writebackEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			for _, dir := range dirs {
				writeback(dir, began)
			}
		}
	}()
	return &Limit{bytesPerSecond}, sync.OnceFunc(func() { close(ended) })
}

// writeback has the kernel begin to write the files in a directory, and in those below it, that were changed since. It ignores errors: files come and go, and whoever writes one syncs it.
func writeback(dir string, since time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.ModTime().Before(since) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if info.IsDir() {
			writeback(path, since)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if f, err := os.Open(path); err == nil {
			_ = unix.SyncFileRange(int(f.Fd()), 0, math.MaxInt64, unix.SYNC_FILE_RANGE_WRITE)
			f.Close()
		}
	}
}

// Reader returns a reader of the same that keeps to the limit.
func (l *Limit) Reader(r io.Reader) io.Reader {
	if l == nil {
		return r
	}
	return &reader{pace{limit: l}, r}
}

// Writer returns a writer to the same that keeps to the limit.
func (l *Limit) Writer(w io.Writer) io.Writer {
	if l == nil {
		return w
	}
	return &writer{pace{limit: l}, w}
}

// Conn returns the connection, of which reads keep to the limit.
func (l *Limit) Conn(c net.Conn) net.Conn { return conn{c, l.Reader(c)} }

// pace is the time at which one reader or writer may go on.
type pace struct {
	limit *Limit
	free  time.Time
}

// took waits as long as n bytes may take.
func (p *pace) took(n int) {
	if earliest := time.Now().Add(-catchUp); p.free.Before(earliest) {
		p.free = earliest
	}
	p.free = p.free.Add(time.Duration(n) * time.Second / time.Duration(p.limit.bytesPerSecond))
	if wait := time.Until(p.free); wait > 0 {
		<-time.After(wait)
	}
}

type reader struct {
	pace
	from io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p[:min(len(p), piece)])
	r.took(n)
	return n, err
}

type writer struct {
	pace
	to io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.took(n)
	return n, err
}

type conn struct {
	net.Conn
	reader io.Reader
}

// Read implements net.Conn.
func (c conn) Read(p []byte) (int, error) { return c.reader.Read(p) }
