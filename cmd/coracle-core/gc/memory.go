package gc

import (
	"runtime"
	"syscall"
	"unsafe"
)

const (
	commandNeeds = 18 << 20 // bytes: what packages allocate when they are initialized, and a little more
	pages        = 64 << 10 // bytes: a multiple of the size of a page, also on arm64
	populate     = 23       // MADV_POPULATE_WRITE, since Linux 5.14; package syscall lacks it
)

// mapMemory has the kernel map size bytes of memory for the heap at once, in huge pages if it can. Otherwise the kernel maps each page of 4 KiB at the first
// write to it, and on some virtual machines these page faults are a third of the time of a short command. The control plane and the node do without: with
// huge pages they keep more memory, and need more processor time where the virtual machine's host has none for them. size must be less than 32 MiB, or the
// runtime gives the memory back; see first.
func mapMemory(size uintptr) {
	heap := make([]byte, size+pages)
	start := unsafe.Pointer(&heap[0])
	start = unsafe.Add(start, -uintptr(start)&(pages-1))
	// Without effect, the pages are mapped one after the other.
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), size, syscall.MADV_HUGEPAGE)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), size, populate)
	runtime.KeepAlive(heap)
	runtime.GC() // the memory is free for other objects
}
