package confine

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filter installs a seccomp filter for all threads: system calls that are not listed fail with EPERM, and so does clone for a new
// namespace.
func filter(allowed []uint32) error { return install(instructions(allowed)) }

// install installs a seccomp filter for all threads.
func install(instructions []bpf.Instruction) error {
	program, err := bpf.Assemble(instructions)
	if err != nil {
		return fmt.Errorf("assembling the filter: %w", err)
	}
	code := make([]unix.SockFilter, len(program))
	for i, p := range program {
		code[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	// Before Linux 5.16 a filter otherwise also switches off the processor's speculation for its threads, which slows them down.
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	thread, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno == 0 && thread != 0 { // see seccomp(2)
		return fmt.Errorf("thread %d has another filter", thread)
	}
	return asError(errno)
}

// The offsets in struct seccomp_data, see linux/seccomp.h: int nr, __u32 arch, __u64 instruction_pointer, __u64 args[6].
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetFlags  = 16 // the lower half of the first argument, on a little-endian machine
)

// newNamespaces are the flags of clone for a namespace.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

func instructions(allowed []uint32) []bpf.Instruction {
	const (
		deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		allow = unix.SECCOMP_RET_ALLOW
	)
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: deny},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 4},
		bpf.LoadAbsolute{Off: offsetFlags, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipTrue: 1},
		bpf.RetConstant{Val: allow},
		bpf.RetConstant{Val: deny},
	}
	for _, number := range allowed {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1}, bpf.RetConstant{Val: allow})
	}
	return append(out, bpf.RetConstant{Val: deny})
}

// NameServer lists what a Go program calls that serves the network, reads files and starts nothing.
func NameServer() []uint32 {
	return append(architecture(),
		// Go's runtime
		unix.SYS_BRK, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
		unix.SYS_FUTEX, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_GETTID,
		unix.SYS_GETTIMEOFDAY, unix.SYS_MADVISE, unix.SYS_MEMBARRIER, unix.SYS_MINCORE, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP,
		unix.SYS_MUNMAP, unix.SYS_NANOSLEEP, unix.SYS_PRCTL, unix.SYS_PRLIMIT64, unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_YIELD,
		unix.SYS_SETITIMER, unix.SYS_SET_ROBUST_LIST, unix.SYS_SIGALTSTACK, unix.SYS_SYSINFO, unix.SYS_TGKILL, unix.SYS_TIMER_CREATE,
		unix.SYS_TIMER_DELETE, unix.SYS_TIMER_SETTIME, unix.SYS_UNAME,
		// who it is
		unix.SYS_GETEGID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETGROUPS, unix.SYS_GETUID,
		// descriptors and files
		unix.SYS_CLOSE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
		unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_GETCWD, unix.SYS_GETDENTS64, unix.SYS_LSEEK,
		unix.SYS_OPENAT, unix.SYS_PIPE2, unix.SYS_PPOLL, unix.SYS_PREAD64, unix.SYS_READ, unix.SYS_READLINKAT, unix.SYS_READV,
		unix.SYS_SENDFILE, unix.SYS_SPLICE, unix.SYS_STATX, unix.SYS_WRITE, unix.SYS_WRITEV,
		// the network
		unix.SYS_ACCEPT4, unix.SYS_BIND, unix.SYS_CONNECT, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT, unix.SYS_LISTEN,
		unix.SYS_RECVFROM, unix.SYS_RECVMMSG, unix.SYS_RECVMSG, unix.SYS_SENDMMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_SETSOCKOPT,
		unix.SYS_SHUTDOWN, unix.SYS_SOCKET,
	)
}
