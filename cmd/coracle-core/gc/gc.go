// Package gc prepares Go's heap for the initialization of this executable's packages, which allocate 17 MB: no garbage is collected meanwhile, as each
// collection would mark again what is there for good. The package is initialized before nearly all others, because it imports next to nothing:
// of the packages whose imports are ready, Go next initializes the one whose import path sorts first. Programs that this process starts inherit nothing, and
// a GOGC that a user has set stays.
package gc

import (
	"runtime"
	"syscall"
	_ "unsafe" // for go:linkname
)

// first is the percentage with which the first collection comes when 32 MiB have been allocated: the runtime's least heap is 4 MiB for each 100.
const first = 800

var _ = prepare()

func prepare() int32 {
	set, _ := syscall.Getenv("GOGC")
	return begin(set, args()[0] == "coracle") // the name under which cmd/coracle executes commands; child processes have this file's
}

// begin defers the first collection, and returns the percentage after it, or 0 if the user has set one. For a command it has memory mapped.
func begin(set string, command bool) (later int32) {
	if set != "" {
		return 0
	}
	later = setGCPercent(first)
	if command {
		mapMemory(commandNeeds)
	}
	type canary struct{ _ [16]byte }
	runtime.SetFinalizer(&canary{}, func(*canary) { end(later) })
	return later
}

// end is called after the first collection. The process may have chosen another percentage by then.
func end(later int32) {
	if now := setGCPercent(later); now != first {
		setGCPercent(now)
	}
}

// setGCPercent is debug.SetGCPercent. A third of the other packages would be initialized before runtime/debug and all that it imports.
//
//go:linkname setGCPercent runtime/debug.setGCPercent
func setGCPercent(percent int32) (before int32)

// args returns os.Args.
//
//go:linkname args os.runtime_args
func args() []string
