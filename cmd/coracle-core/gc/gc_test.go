package gc

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"testing"
)

// TestMain waits until the first collection's effect on this process itself is over, as it would change the percentage in the middle of a test.
func TestMain(m *testing.M) {
	for percent() == first {
		runtime.GC()
	}
	m.Run()
}

func TestBegin(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, set := range []string{"50", "off"} {
		if later := begin(set, false); later != 0 || percent() != 100 {
			t.Errorf("GOGC=%s: %d after the first collection, %d before; the user's must stay", set, later, percent())
		}
	}
	if later := begin("", false); later != 100 || percent() != first {
		t.Fatalf("%d after the first collection, %d before", later, percent())
	}
	for percent() != 100 { // or the test's time is over
		runtime.GC()
	}
}

// TestEnd: a process that has decided before the first collection keeps its own percentage.
func TestEnd(t *testing.T) {
	before := debug.SetGCPercent(25)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	if end(100); percent() != 25 {
		t.Errorf("it is %d", percent())
	}
}

func percent() int {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(now)
	return int(now[0].Value.Uint64())
}

// TestMapMemory: writing to memory that is mapped takes hardly any page faults. Linux before 5.14 needs transparent huge pages for that.
func TestMapMemory(t *testing.T) {
	const size, page = 16 << 20, 4 << 10
	debug.FreeOSMemory() // Where much is free, the runtime gives memory back, and may take that which is to be mapped.
	before := debug.SetGCPercent(first)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	faults := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return u.Minflt
	}
	mapMemory(size + 1<<20)
	begin := faults()
	memory := make([]byte, size)
	write(memory, page)
	if n := faults() - begin; n > size/page/8 {
		t.Errorf("%d page faults for %d pages", n, size/page)
	}
	runtime.KeepAlive(memory)
}

// write writes a byte to each page of memory, without the race detector: its own memory takes as many page faults.
//
//go:norace
func write(memory []byte, page int) {
	for i := 0; i < len(memory); i += page {
		memory[i] = 1
	}
}
