package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// File is a log file of limited size: when it is full it is renamed to PATH.1, an older PATH.1 to
// PATH.2, and so on; the oldest is removed. Fields are set before the first Write.
type File struct {
	Path string
	// Max is how many bytes one file may hold. Zero is 10 MiB.
	Max int64
	// Keep is how many full files are kept. Zero is 3.
	Keep int

	mu   sync.Mutex
	f    *os.File
	size int64
}

// Write appends whole lines. It never splits data over two files. After an error it truncates the file to its former size, if
// the disk allows.
func (l *File) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	if l.size > 0 && l.size+int64(len(data)) > l.max() {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(data)
	if err != nil && n > 0 && l.f.Truncate(l.size) == nil {
		n = 0
	}
	l.size += int64(n)
	return n, err
}

// Sync syncs the file. Write does not wait for it.
func (l *File) Sync() error {
	l.mu.Lock()
	f := l.f
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Sync()
}

// Close closes the file. A later Write opens it again.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

func (l *File) max() int64 {
	if l.Max == 0 {
		return 10 << 20
	}
	return l.Max
}

func (l *File) keep() int {
	if l.Keep == 0 {
		return 3
	}
	return l.Keep
}

func (l *File) open() error {
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return fmt.Errorf("opening the log file: %w", err)
	}
	f, err := os.OpenFile(l.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log file: %w", err)
	}
	size, err := mend(f)
	if err != nil {
		f.Close()
		return fmt.Errorf("opening the log file: %w", err)
	}
	l.f, l.size = f, size
	return nil
}

// mend ends the last line with a newline if a crash has left it unfinished, and returns the file's size.
func mend(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return info.Size(), err
	}
	_, err = f.Write([]byte("\n"))
	return info.Size() + 1, err
}

func (l *File) rotate() error {
	_ = l.f.Sync() // a later Sync is for the new file
	l.f.Close()
	l.f = nil
	for i := l.keep(); i > 1; i-- {
		_ = os.Rename(l.Path+"."+strconv.Itoa(i-1), l.Path+"."+strconv.Itoa(i)) // may not exist yet
	}
	if err := os.Rename(l.Path, l.Path+".1"); err != nil {
		return fmt.Errorf("rotating the log file: %w", err)
	}
	return l.open()
}
