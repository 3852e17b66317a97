package hosts

import (
	"bytes"
	"sync"
)

// Output is the output of a command so far; it is safe while more is written.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the output; it never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
