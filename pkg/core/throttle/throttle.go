// Package throttle lets a process that copies large files in the background leave the disk and the processors to others.
package throttle

import (
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// piece is how much is read in one go.
const piece = 128 << 10

// catchUp is how much lost time may be caught up on, as timers fire late.
const catchUp = 100 * time.Millisecond

// writebackEvery is the time between two looks for data that is not on the disk yet.
const writebackEvery = 20 * time.Millisecond

var rate atomic.Int64 // bytes a second, 0 for no limit

// Limit has each Reader of this process read at most so many bytes a second, and has what is written to the files below dir, and to a File, go to the disk at
// once, until the returned function is called: a sync of another process on the same file system, as etcd's, then waits for little of it.
func Limit(bytesPerSecond int64, dir string) (end func()) {
	rate.Store(bytesPerSecond)
	ended := make(chan struct{})
	go func() {
		ticker := time.NewTicker(writebackEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				writebackAll(dir)
			}
		}
	}()
	return sync.OnceFunc(func() {
		rate.Store(0)
		close(ended)
	})
}

// writebackAll ignores errors: files come and go.
func writebackAll(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if f, err := os.Open(path); err == nil {
			writeback(f)
			f.Close()
		}
		return nil
	})
}

// writeback begins to write what the kernel holds of a file. An error is one of whoever syncs the file.
func writeback(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, math.MaxInt64, unix.SYNC_FILE_RANGE_WRITE)
}

// File returns a writer to a file that is in no limited directory.
func File(f *os.File) io.Writer { return &file{to: f} }

type file struct {
	to   *os.File
	held int // bytes
}

func (f *file) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	if f.held += n; f.held >= piece && rate.Load() > 0 {
		f.held = 0
		writeback(f.to)
	}
	return n, err
}

// Reader returns a reader of the same that keeps to the limit.
func Reader(r io.Reader) io.Reader { return &reader{from: r} }

type reader struct {
	from io.Reader
	free time.Time // when the next piece may be read
}

func (r *reader) Read(p []byte) (int, error) {
	if limit := rate.Load(); limit > 0 {
		time.Sleep(time.Until(r.free))
		n, err := r.from.Read(p[:min(len(p), piece)])
		if earliest := time.Now().Add(-catchUp); r.free.Before(earliest) {
			r.free = earliest
		}
		r.free = r.free.Add(time.Duration(n) * time.Second / time.Duration(limit))
		return n, err
	}
	return r.from.Read(p)
}

// Conn returns the connection, of which reads keep to the limit.
func Conn(c net.Conn) net.Conn { return conn{c, Reader(c)} }

type conn struct {
	net.Conn
	reader io.Reader
}

// Read implements net.Conn.
func (c conn) Read(p []byte) (int, error) { return c.reader.Read(p) }
