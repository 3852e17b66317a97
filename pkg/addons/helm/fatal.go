package helm

import (
	"bytes"
	"os"
	"strings"
)

// beginning keeps the first 8 KiB of what is written to it.
type beginning struct{ bytes.Buffer }

// Write never fails.
func (b *beginning) Write(data []byte) (int, error) {
	room := 8<<10 - b.Len()
	b.Buffer.Write(data[:min(len(data), room)])
	return len(data), nil
}

// fatal is what Go itself said first when it ended a process whose standard error this is; "" if it said nothing. The rest,
// and the text of a panic, may have values of the chart in it.
func (b *beginning) fatal() string {
	line, _, whole := strings.Cut(b.String(), "\n")
	if whole && (strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "runtime: ")) {
		return line
	}
	return ""
}

// tookAll reports whether such a line means that the process wanted more stack or memory than it was to have. Where memory
// is rationed, there may have been too little for all.
func tookAll(line string, rationed bool) bool {
	switch {
	case strings.Contains(line, "stack overflow"), strings.Contains(line, "stack exceeds"):
		return true
	case strings.Contains(line, "out of memory"), strings.Contains(line, "cannot allocate memory"):
		return !rationed
	}
	return false
}

// rationed reports whether this machine refuses memory to a process that is within its own limits.
func rationed() bool {
	mode, err := os.ReadFile("/proc/sys/vm/overcommit_memory")
	return err == nil && strings.TrimSpace(string(mode)) == "2"
}
