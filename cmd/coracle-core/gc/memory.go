package gc

import (
	"runtime"
	"syscall"
	"unsafe"
)

const (
	commandNeeds = 24 << 20 // bytes that a command allocates, about
	hugePage     = 2 << 20  // bytes
	populate     = 23       // MADV_POPULATE_WRITE, since Linux 5.14; package syscall lacks it
)

// mapMemory has the kernel map size bytes of memory for the heap at once, in huge pages if it can. Otherwise it maps each page of 4 KiB at the first write to it,
// and on some virtual machines these 6000 page faults are a third of the time of a short command. A process that lasts does without: with huge pages it
// keeps more memory, and where the host has none for them, accesses are slower. The least heap must be larger, or the runtime gives the memory back.
func mapMemory(size uintptr) {
	heap := make([]byte, size+hugePage)
	start := unsafe.Pointer(&heap[0])
	start = unsafe.Add(start, -uintptr(start)&(hugePage-1))
	// Without effect, the pages are mapped one after the other.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), size, syscall.MADV_HUGEPAGE)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), size, populate)
	runtime.KeepAlive(heap)
	runtime.GC() // the memory is free for other objects
}
