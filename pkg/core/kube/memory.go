package kube

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GOGC, the growth of the heap in percent of the memory in use at which garbage is collected.
//
// A start is quicker if it collects late, because it needs all cores. But then the objects that outlive the start are
// scattered over a larger heap for the life of the process (measured for the control plane alone: 104, 108, 112, 121 and
// 129 MB at 25, 35, 100, 200 and 400; beside a node, 124 MB at 35 and 151 MB at 200). When the cluster is idle, a low value
// keeps garbage from being most of the memory. Under load it would cost too much processor time.
const (
	gcStarting = 100
	gcIdle     = 25
	gcSteady   = 50
	gcBusy     = 100
	// gcRoom is how much garbage in bytes a process under load may have before it is collected, although that is more than gcBusy allows: a collection
	// costs what the objects in use cost, however little garbage it finds. The gateway, with 6 MB in use, serves a third more requests.
	gcRoom = 24 << 20

	// Under load, which is when three collections are within busyBelow or ten within ten times that, the value is doubled each time. A full node's
	// statistics of all pods, every 10 s, cause two. From then on it is halved after a review that has found at most few collections, and gcIdle after
	// one that has found none.
	busyBelow = time.Second
	// steadyBelow is the time for nine collections at gcIdle below which a little load stays, such as the statistics of a full node, whose objects a collection
	// every three seconds would mark for nothing. The value is gcSteady then, as long as that takes less than twice the time.
	steadyBelow = 45 * time.Second
	review      = 20 * time.Second
	few         = 4

	// startLasts is the time after which a start is taken for finished.
	startLasts = 20 * time.Second
)

// The values for SetupProcess.
const (
	GCDefault = gcStarting
	// GCControlPlane defers the first collection until 64 MiB are in use: the runtime's least heap is 4 MiB for each 100. Nearly as much stays for good, so
	// that collections before that would mark the same objects again and again.
	GCControlPlane = 1600
)

// startGC configures the garbage collector for the life of the process. The memory limit follows those of the machine and the
// control group; GOMEMLIMIT overrides it. first is the value until the first collection.
func startGC(first int) {
	debug.SetGCPercent(first)
	c := new(collector)
	afterCollection(c.begun)
	if limit := memoryLimit("/"); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// Another child process, pods, and memory outside Go's heap need the rest.
		debug.SetMemoryLimit(limit / 2)
	}
	time.AfterFunc(startLasts, c.begin)
}

// collector adapts the garbage collector to the load. It acts when a collection has ended, and has a timer only while there
// is load.
type collector struct {
	mu      sync.Mutex
	percent int          // GOGC, 0 until begin
	last    [9]time.Time // when the last nine collections ended, the newest first
	recent  int          // collections since the last review
	own     bool         // the next collection is the collector's own
}

// begun sets the value for the rest of the start, after the first collection.
func (c *collector) begun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.percent == 0 {
		debug.SetGCPercent(gcStarting)
	}
}

func (c *collector) begin() {
	c.set(gcIdle)
	c.watch()
}

// watch makes each collection from now on call collected.
func (c *collector) watch() {
	afterCollection(func() { c.collected(time.Now(), inUse()); c.watch() })
}

// afterCollection calls f after the next collection, by a finalizer of an unused object.
func afterCollection(f func()) {
	type canary struct{ _ [16]byte }
	runtime.SetFinalizer(&canary{}, func(*canary) { f() })
}

// inUse returns the size in bytes of the objects that the last collection has left.
func inUse() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return max(1, live[0].Value.Uint64())
}

// collected raises GOGC if there is load. live is what the collection has left, in bytes.
func (c *collector) collected(now time.Time, live uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own {
		c.own = false
		return
	}
	c.recent++
	most := c.least(now)
	if now.Sub(c.last[1]) < busyBelow || now.Sub(c.last[8]) < 10*busyBelow {
		most = max(gcBusy, int(100*gcRoom/live))
	}
	copy(c.last[1:], c.last[:])
	c.last[0] = now
	if c.percent >= most {
		return
	}
	if c.percent == gcIdle {
		time.AfterFunc(review, c.review)
	}
	c.percent = min(2*c.percent, most)
	debug.SetGCPercent(c.percent)
}

// least returns the value without load: how many collections there would be at gcIdle decides.
func (c *collector) least(now time.Time) int {
	if now.Sub(c.last[8]) < steadyBelow*time.Duration(min(c.percent, gcSteady))/gcIdle {
		return gcSteady
	}
	return gcIdle
}

// review lowers GOGC after load.
func (c *collector) review() {
	c.mu.Lock()
	recent, percent, least := c.recent, c.percent, c.least(time.Now())
	c.recent = 0
	c.mu.Unlock()
	switch {
	case recent == 0:
		percent = gcIdle
	case recent <= few:
		percent = max(percent/2, min(percent, least))
	}
	if recent <= few {
		c.set(percent)
	}
	if percent > gcIdle {
		time.AfterFunc(review, c.review)
	}
}

// set sets GOGC and returns unused memory to the system, which takes a collection, unless it is set already.
func (c *collector) set(percent int) {
	c.mu.Lock()
	same := c.percent == percent
	c.percent, c.own = percent, !same
	debug.SetGCPercent(percent)
	c.mu.Unlock()
	if !same {
		debug.FreeOSMemory()
	}
}

// memoryLimit returns how many bytes the process may use: the smallest limit of its control groups, of either version, or the
// machine's memory; 0 if that is unknown. root is "/" except in tests.
func memoryLimit(root string) int64 {
	limit := int64(0)
	lower := func(n int64) {
		if n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	lower(memTotal(path.Join(root, "proc/meminfo")))
	groups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, file := "", ""
		switch {
		case parts[0] == "0":
			base, file = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be that on the host, while the own group is mounted as the root.
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			lower(number(path.Join(root, base, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// number reads a file with a number. It returns 0 for anything else, such as "max", and the largest int64 for a number above it.
func number(file string) int64 {
	data, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}

func memTotal(file string) int64 {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// timerSlack is how late a timer of an idle control plane may fire. The shortest that matter are etcd's ticks of 500 ms.
const timerSlack = 50 * time.Millisecond

// CoalesceTimers lets the kernel fire the process's timers up to 50 ms late, so that timers that are close together cause one
// wake-up. Some hundred caches and work queues of Kubernetes have a ticker each. In an idle control plane this saves half of
// the CPU time (measured: 2.5 % of a core without, 1.1 % with it). Work that arrives over a socket is not delayed.
//
// Threads and child processes inherit the slack from the thread that creates them, so a process that starts containers must
// not call this. See timer_slack in prctl(2) and proc_pid_timerslack_ns(5).
func CoalesceTimers() error {
	// For all threads by their own call: only a process with CAP_SYS_NICE may write another thread's timerslack_ns.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(timerSlack.Nanoseconds()), 0)
	if errno != 0 {
		return fmt.Errorf("setting the timer slack: %w", errno)
	}
	return nil
}
