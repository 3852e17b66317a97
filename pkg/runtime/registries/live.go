package registries

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync"
)

// Live is a registries.yaml that is read again at each use, so that a change takes effect at once. It is safe for concurrent use.
type Live struct {
	path string
	at   func(path string) string // where a file that it names is read

	mu       sync.Mutex
	contents map[string]string // fingerprints of the file and of those that it names, as last read
	good     *File             // the last valid content; nil if there was none
	wrong    error             // of the file as last read
}

// NewLive returns a Live of a file. It does not read the file yet.
func NewLive(path string) *Live { return NewCopied(path, newParser(path).at) }

// NewCopied returns a Live of the copy of a file. at returns where the copy of a file is that it names.
func NewCopied(path string, at func(named string) string) *Live { return &Live{path: path, at: at} }

// Named returns the files that a file names, which may not exist.
func Named(file string) (names []string) {
	p := newParser(file)
	_, _ = p.load() // reads on after mistakes, and others report them
	for name := range p.contents {
		if name != file {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Path returns the path of the file.
func (l *Live) Path() string { return l.path }

// Now returns the last valid content of the file, nil if it was never valid, and the error of its present content. It returns the same
// File until the file, or one that it names, changes.
func (l *Live) Now() (*File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contents == nil || l.changed() {
		p := newParser(l.path)
		p.at = l.at
		file, err := p.load()
		l.contents, l.wrong = p.contents, err
		if err == nil {
			l.good = file
		}
	}
	return l.good, l.wrong
}

// changed reports whether a file has another content than the one that was read. The files are small, and modification times may lie.
func (l *Live) changed() bool {
	for path, was := range l.contents {
		if fingerprint(os.ReadFile(path)) != was {
			return true
		}
	}
	return false
}

func fingerprint(data []byte, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}
