package kube

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryLimit(t *testing.T) {
	const mem = "MemTotal:       8000000 kB\nMemFree:  1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known": {nil, 0},
		"machine":       {map[string]string{"proc/meminfo": mem}, 8000000 << 10},
		"version 2": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1000000\n"}, 1000000},
		"version 2 in a container": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "2000000\n"}, 2000000},
		"version 1": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/id\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "3000000\n"}, 3000000},
		"version 1 without a limit": {map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8000000 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range c.files {
				file = filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := memoryLimit(root); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{percent: gcIdle}
		want := func(percent int, when string) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.percent != percent {
				t.Errorf("%s: GOGC is %d, want %d", when, c.percent, percent)
			}
		}
		live := uint64(100 << 20)
		collect := func(times int, apart time.Duration) {
			for range times {
				time.Sleep(apart)
				c.collected(time.Now(), live)
			}
		}
		collect(1, 2*time.Minute)
		want(gcIdle, "a collection after a long time")
		collect(3, busyBelow)
		want(gcIdle, "a collection every second")
		collect(1, busyBelow/3)
		want(gcIdle, "two within a third of a second")
		collect(1, busyBelow/3)
		want(2*gcIdle, "three within a second")
		collect(1, busyBelow/3)
		want(gcBusy, "four")
		collect(60, busyBelow/3)
		want(gcBusy, "all the time")
		collect(3, 9*time.Second)
		want(gcBusy/2, "a collection every 9 seconds, as with some load that stays")
		collect(30, 2*time.Second)
		want(gcBusy/2, "a collection every 2 seconds, as with half the value")
		collect(2, busyBelow/3)
		want(gcBusy, "load again")
		time.Sleep(2 * review)
		want(gcIdle, "long after the load")
		collect(1, time.Minute)
		want(gcIdle, "a collection after a long time")
		collect(30, 6*time.Second)
		want(gcIdle, "a collection every 6 seconds")
		collect(30, 3*time.Second)
		want(gcSteady, "every 3 seconds, as with the statistics of a full node")
		collect(30, 6*time.Second)
		want(gcSteady, "every 6 seconds, as with twice the value")
		collect(30, 13*time.Second)
		want(gcIdle, "every 13 seconds, as without the pods")
		collect(30, busyBelow*12/10)
		want(gcSteady, "every 1.2 seconds")
		time.Sleep(time.Minute)
		want(gcIdle, "a minute without any")
		collect(1, time.Minute)
		collect(10, busyBelow*9/10)
		want(2*gcIdle, "ten, with 0.9 seconds between them")
		live = 6 << 20
		collect(10, busyBelow/3)
		want(4*gcBusy, "load of a process that uses 6 MB")
		live = 12 << 20
		collect(10, busyBelow/3)
		want(4*gcBusy, "more in use") // what is set already stays until the load ends
		time.Sleep(2 * review)
		want(gcIdle, "long after it")
	})
}

// TestFirstCollection: the first collection ends the first value of a start, but not the value of what has run for longer.
func TestFirstCollection(t *testing.T) {
	before := debug.SetGCPercent(GCControlPlane)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	now := func() int {
		percent := debug.SetGCPercent(gcBusy)
		debug.SetGCPercent(percent)
		return percent
	}
	c := new(collector)
	if c.begun(); now() != gcStarting {
		t.Errorf("GOGC is %d after the first collection", now())
	}
	c.set(gcIdle)
	if c.begun(); now() != gcIdle {
		t.Errorf("GOGC is %d after the start", now())
	}
}
