package localstorage

import (
	"context"
	"runtime"
	"sync/atomic"
)

// quiet is the context for the library's ProvisionController.Run. The library polls ten times a second through a set of
// claims with a gRPC error that nothing here returns, which takes 0.15 % of a core, a fifth of an idle node's load. No
// option disables the loop, but it is the first caller of Done in Run, so quiet returns a closed channel to that call. A
// test checks that the order still holds, and that everything else goes on. It can go when the library has an option.
type quiet struct {
	context.Context
	called atomic.Bool
}

// libraryRun is the function in which the library starts its loops.
const libraryRun = "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller.(*ProvisionController).Run.func1"

func (q *quiet) Done() <-chan struct{} {
	if !q.called.Load() && calledFrom(libraryRun) && q.called.CompareAndSwap(false, true) {
		over := make(chan struct{})
		close(over)
		return over
	}
	return q.Context.Done()
}

// calledFrom reports whether the caller's caller is a function.
func calledFrom(name string) bool {
	const skip = 3 // runtime.Callers, calledFrom, Done
	var pcs [1]uintptr
	frame, _ := runtime.CallersFrames(pcs[:runtime.Callers(skip, pcs[:])]).Next()
	return frame.Function == name
}
