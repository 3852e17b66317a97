package registries

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
)

// Live is a registries.yaml as it is when somebody asks: there is no moment between a change and its effect, and nothing
// is watched. It is safe for concurrent use.
type Live struct {
	path string

	mu       sync.Mutex
	contents map[string]string // of the file and those that it names, as last read
	good     *File             // the last one without a mistake; nil if there was none
	wrong    error             // with the file as last read
}

// NewLive reads nothing yet.
func NewLive(path string) *Live { return &Live{path: path} }

// Path is the file's.
func (l *Live) Path() string { return l.path }

// Now returns what the file says, and what is wrong with it. While something is, the file is as it was before; nil if
// it was never right. The same file is returned until it changes, or one that it names.
func (l *Live) Now() (*File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contents == nil || l.changed() {
		p := newParser(l.path)
		file, err := p.load()
		l.contents, l.wrong = p.contents, err
		if err == nil {
			l.good = file
		}
	}
	return l.good, l.wrong
}

// changed reports whether a file is not what was read. They are small, and times of files can deceive.
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
