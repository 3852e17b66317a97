// Package gc keeps garbage from being collected while the packages of this executable are initialized: they allocate less than it takes to fill a small
// heap, and each collection would mark again what is there for good. It is initialized before nearly all of them, because it imports little and the order
// is that of import paths. Programs that this process starts inherit nothing, and a GOGC that a user has set stays.
package gc

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// first is the percentage with which the first collection comes when 32 MiB have been allocated: the runtime's least heap is 4 MiB for each 100.
const first = 800

var _ = begin(os.Getenv("GOGC"))

// begin defers the first collection, and returns the percentage after it, or 0 if the user has set one.
func begin(set string) (later int) {
	if set != "" {
		return 0
	}
	type canary struct{ _ [16]byte }
	later = debug.SetGCPercent(first)
	runtime.SetFinalizer(&canary{}, func(*canary) { end(later) })
	return later
}

// end is called after the first collection. The process may have chosen another percentage by then.
func end(later int) {
	if percent() == first {
		debug.SetGCPercent(later)
	}
}

func percent() int {
	now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(now)
	return int(now[0].Value.Uint64())
}
