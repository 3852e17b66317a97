// Package throttle lets a process that copies large files in the background leave the disk and the processors to others.
package throttle

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	piece = 128 << 10 // bytes that are read in one go
	// catchUp is how much lost time may be caught up on, as timers fire late.
	catchUp = 100 * time.Millisecond
	// writebackEvery is the time between two looks for data that is not on the disk yet.
	writebackEvery = 50 * time.Millisecond
)

// Limit is how fast its readers and writers may be, together. A nil Limit is none.
type Limit struct{ limiter *rate.Limiter }

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
	burst := int(bytesPerSecond * catchUp.Milliseconds() / 1000)
	return &Limit{rate.NewLimiter(rate.Limit(bytesPerSecond), burst)}, sync.OnceFunc(func() { close(ended) })
}

// writeback has the kernel begin to write the files in a directory, and in those below it, that were changed since. It ignores errors: files come and go, and whoever
// writes one syncs it.
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

// RemoveAll removes what is at a path, and what is below it, as os.RemoveAll does, but large files piece by piece. At its next commit a file system that is mounted
// with the option discard has the disk forget all that was removed, and syncs of other processes wait for that.
func RemoveAll(path string) error {
	const atOnce = 16 << 20 // bytes
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil || stat.Size <= atOnce || stat.Nlink > 1 { // with further names the file stays
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		for size := stat.Size; size > 0 && err == nil; {
			size = max(0, size-atOnce)
			err = errors.Join(f.Truncate(size), f.Sync())
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(path))
}

// Reader returns a reader of the same that keeps to the limit.
func (l *Limit) Reader(r io.Reader) io.Reader {
	if l == nil {
		return r
	}
	return &reader{l, r}
}

// Writer returns a writer to the same that keeps to the limit.
func (l *Limit) Writer(w io.Writer) io.Writer {
	if l == nil {
		return w
	}
	return &writer{l, w}
}

// Wait waits as long as n bytes may take.
func (l *Limit) Wait(n int) {
	if l == nil {
		return
	}
	for n > 0 {
		part := min(n, l.limiter.Burst())
		_ = l.limiter.WaitN(context.Background(), part) // which fails for more than the burst only
		n -= part
	}
}

type reader struct {
	limit *Limit
	from  io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p[:min(len(p), piece)])
	r.limit.Wait(n)
	return n, err
}

type writer struct {
	limit *Limit
	to    io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.limit.Wait(n)
	return n, err
}
