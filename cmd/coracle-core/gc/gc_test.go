package gc

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBegin(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, set := range []string{"50", "off"} {
		if later := begin(set); later != 0 || percent() != 100 {
			t.Errorf("GOGC=%s: %d after the first collection, %d before; the user's must stay", set, later, percent())
		}
	}
	if later := begin(""); later != 100 || percent() != first {
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
