package helm

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
)

// renderLimits bound the rendering of a chart, for which Helm itself has no limits.
type renderLimits struct {
	Memory int           // bytes, besides what the process has when rendering begins
	CPU    int           // seconds of processor time
	Output int           // bytes of manifests
	Time   time.Duration // until the chart is rendered, from the start of the child
}

// defaultLimits are generous: Helm stores a release in a Secret of at most 1 MiB compressed, so a larger result could
// not be stored anyway.
var defaultLimits = renderLimits{256 << 20, 60, 16 << 20, 2 * time.Minute}

// renderStack is how large a goroutine's stack may become, in bytes.
const renderStack = 64 << 20

// impose limits this process until lift is called. A limit that cannot be set is left out.
func (l renderLimits) impose() (lift func()) {
	debug.SetMaxStack(renderStack)
	debug.SetMemoryLimit(int64(l.Memory) * 3 / 4) // collect garbage rather than exceed the limit
	var cpu, space unix.Rlimit
	var used unix.Rusage
	_ = unix.Getrlimit(unix.RLIMIT_CPU, &cpu)
	_ = unix.Getrlimit(unix.RLIMIT_AS, &space)
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	spent := uint64(used.Utime.Sec) + uint64(used.Stime.Sec) + 1
	_ = unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: spent + uint64(l.CPU), Max: cpu.Max})
	// RLIMIT_DATA would let one large allocation pass: Go takes memory from what it has reserved with MAP_FIXED, for which the
	// kernel does not count the pages that it replaces. What Go has reserved until now does not matter.
	if has := addressSpace(); has > 0 {
		const arena = 64 << 20 // bytes of address space that Go reserves for its heap at once
		_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: has + uint64(l.Memory) + arena, Max: space.Max})
	}
	return func() {
		_ = unix.Setrlimit(unix.RLIMIT_CPU, &cpu)
		_ = unix.Setrlimit(unix.RLIMIT_AS, &space)
		debug.SetMemoryLimit(math.MaxInt64)
	}
}

// check is an error if a rendered release is too large.
func (l renderLimits) check(r *releasev1.Release) error {
	size := len(r.Manifest)
	for _, h := range r.Hooks {
		size += len(h.Manifest)
	}
	if size > l.Output {
		return problem{reasonTooLarge, l.exceeded()}
	}
	return nil
}

// addressSpace is the memory of this process that RLIMIT_AS counts, in bytes; 0 if it is not known.
func addressSpace() uint64 {
	var pages uint64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if _, err := fmt.Fscan(bytes.NewReader(statm), &pages); err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// firstBytes keeps the first 8 KiB that are written to it.
type firstBytes struct{ bytes.Buffer }

// Write never fails.
func (b *firstBytes) Write(data []byte) (int, error) {
	room := 8<<10 - b.Len()
	b.Buffer.Write(data[:min(len(data), room)])
	return len(data), nil
}

// fatalError is the first line of a process's standard error if Go's runtime wrote it; "" otherwise. Further lines, and
// the text of a panic, may contain values of the chart.
func (b *firstBytes) fatalError() string {
	line, _, whole := strings.Cut(b.String(), "\n")
	if whole && (strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "runtime: ")) {
		return line
	}
	return ""
}

// exhausted reports whether a fatal error means that a process reached its limit of stack or memory. Where the kernel
// denies overcommitment, the whole machine may have been short of memory instead.
func exhausted(fatal string, denied bool) bool {
	switch {
	case strings.Contains(fatal, "stack overflow"), strings.Contains(fatal, "stack exceeds"):
		return true
	case strings.Contains(fatal, "out of memory"), strings.Contains(fatal, "cannot allocate memory"):
		return !denied
	}
	return false
}

// overcommitDenied reports whether the kernel refuses memory to a process that is within its own limits.
func overcommitDenied() bool {
	mode, err := os.ReadFile("/proc/sys/vm/overcommit_memory")
	return err == nil && strings.TrimSpace(string(mode)) == "2"
}
