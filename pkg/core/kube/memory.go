package kube

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How much the heap may grow over what is in use before it is collected, in percent.
//
// A start makes little garbage that lasts and needs both cores for itself, so to collect late is quicker. It is not
// free: what outlives the start then lies scattered over a larger heap, for ever (measured for the control plane
// alone: 104, 108, 112, 121 and 129 MB at 25, 35, 100, 200 and 400; beside a node, 124 MB at 35 and 151 MB at 200).
// Idle, most memory of a small cluster would be garbage. Under load a collector that is called all the time costs too
// much.
const (
	gcStarting = 100
	gcIdle     = 25
	gcBusy     = 100

	// busyBelow is the time between two collections that tells that there is load, idleAfter the time without one
	// after which it is over.
	busyBelow = 2 * time.Second
	idleAfter = 10 * time.Second

	// startLasts leaves the processors to what starts, in this process and beside it.
	startLasts = 20 * time.Second
)

// startGC sets up the collector for the life of the process. The limits of the machine and of the control group hold
// from the start; GOMEMLIMIT overrides them.
func startGC() {
	debug.SetGCPercent(gcStarting)
	if limit := memoryLimit("/"); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// There are two child processes, pods, and memory that Go does not manage.
		debug.SetMemoryLimit(limit / 2)
	}
	time.AfterFunc(startLasts, new(collector).begin)
}

// collector adapts the garbage collector to what the process is doing. It acts when a collection has happened, and
// has a timer only while there is load.
type collector struct {
	mu   sync.Mutex
	busy bool
	last time.Time // when the last collection ended
}

func (c *collector) begin() {
	c.calm()
	c.last = time.Now() // our own collections do not count
	c.watch()
}

// watch has collected called after the next collection, which finds the object unused.
func (c *collector) watch() {
	type canary struct{ _ [16]byte }
	runtime.SetFinalizer(&canary{}, func(*canary) { c.collected(time.Now()); c.watch() })
}

// collected decides from the time since the last collection whether there is load.
func (c *collector) collected(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.last) < busyBelow && !c.busy {
		c.busy = true
		debug.SetGCPercent(gcBusy)
		time.AfterFunc(idleAfter, c.load)
	}
	c.last = now
}

// load looks whether the load is over, and if so gives back what it took.
func (c *collector) load() {
	c.mu.Lock()
	rest := idleAfter - time.Since(c.last)
	if rest <= 0 {
		c.busy = false
	}
	c.mu.Unlock()
	if rest > 0 {
		time.AfterFunc(rest, c.load)
		return
	}
	c.calm()
}

// calm sets the collector for an idle process and returns unused memory to the system.
func (c *collector) calm() {
	debug.SetGCPercent(gcIdle)
	debug.FreeOSMemory()
}

// memoryLimit returns how many bytes the process may use: the smallest limit of the control groups that it is in, of
// either version, or the machine's memory. 0 is unknown. root is "/" but in tests.
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
		// A container sees its own group as the root, but may be told the path on the host.
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			lower(number(path.Join(root, base, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// number reads a file with a number. Anything else, like "max", is 0.
func number(file string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
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

// CoalesceTimers lets the kernel fire the process' timers up to 50 ms late, so that those that lie close together wake
// it once. Some hundred caches and work queues of Kubernetes have a ticker each: idle, the control plane does little but
// wake up, and this saves half of its CPU time (measured: 2.5 % of a core without, 1.1 % with it). Work that arrives
// over a socket is not delayed.
//
// Threads and child processes inherit the slack from the thread that makes them, so this is not for a process that
// starts containers. See timer_slack in prctl(2) and proc_pid_timerslack_ns(5).
func CoalesceTimers() error {
	slack := []byte(strconv.FormatInt(timerSlack.Nanoseconds(), 10))
	for range 2 { // a thread that was born during the first walk may have an old slack from its parent
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing the threads: %w", err)
		}
		for _, t := range threads {
			err := os.WriteFile("/proc/"+t.Name()+"/timerslack_ns", slack, 0)
			if err != nil && !os.IsNotExist(err) { // a thread may end at any time
				return fmt.Errorf("letting timers fire late: %w", err)
			}
		}
	}
	return nil
}
