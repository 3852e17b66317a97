// Package sockets looks at this process' connections from outside of the code that has them: for servers and clients of upstream that cannot be
// configured.
package sockets

import (
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors are those of this process. Any of them may be closed when they are looked at, and its number used again.
func Descriptors() (all []int) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil {
			all = append(all, fd)
		}
	}
	return all
}

// Count is the number of this process' descriptors, as cheaply as the kernel tells it: Linux since 6.2 has it as the directory's size.
func Count() int {
	var dir unix.Stat_t
	if err := unix.Stat("/proc/self/fd", &dir); err == nil && dir.Size > 0 {
		return int(dir.Size)
	}
	return len(Descriptors())
}

// Shutdown ends a connection in both directions, which its owner notices, if the descriptor still is what it is to be.
func Shutdown(fd int, still func(fd int) bool) {
	// The owner may close it at any moment, and the number may be used again, so work on a duplicate.
	ours, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	if still(ours) {
		_ = unix.Shutdown(ours, unix.SHUT_RDWR)
	}
	_ = unix.Close(ours)
}

// rtoMinMicroseconds is TCP_RTO_MIN_US of Linux, since 6.16, which package unix does not have yet.
const rtoMinMicroseconds = 45

// firstRepeat is how long unacknowledged data waits until TCP sends it again, besides the time that acknowledgements usually take, of which it allows for
// four times their mean deviation. So a peer that holds back its acknowledgements for 40 ms, as Linux does, is not asked twice for long.
const firstRepeat = 20 * time.Millisecond

// RepeatOften makes TCP send unacknowledged data of a connection again sooner, and in equal intervals instead of ever longer ones, while there is
// little of it. Where a network loses one of seven packets, connections otherwise stand still for seconds. What a listener accepts inherits it. Kernels before 6.16
// wait 200 ms before the first time.
func RepeatOften(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, rtoMinMicroseconds, int(firstRepeat.Microseconds()))
}

// ControlOften is RepeatOften as a function for net.Dialer and net.ListenConfig.
func ControlOften(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { RepeatOften(int(fd)) })
}

// Address returns the address of a connection's end, as unix.Getpeername or unix.Getsockname return it. It is invalid after an error, and for
// what is no connection of IP.
func Address(at unix.Sockaddr, err error) netip.AddrPort {
	if err == nil {
		switch at := at.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
		case *unix.SockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port))
		}
	}
	return netip.AddrPort{}
}

// Source returns whom an address counts as in limits for each source: an IPv4 address is one, and an IPv6 network of 64 bits.
func Source(at netip.Addr) netip.Prefix {
	bits := 64
	ip := at.Unmap().WithZone("")
	if ip.Is4() {
		bits = 32
	}
	source, _ := ip.Prefix(bits) // cannot fail with these
	return source
}
