package supervise

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfoPID reads si_pid of a SIGCHLD's siginfo. On 64-bit Linux the fields after si_signo, si_errno and si_code
// begin at byte 16, si_pid first.
func siginfoPID(info *unix.Siginfo) int {
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), 16)))
}

func signalName(s syscall.Signal) string { return unix.SignalName(s) }
