package member

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"golang.org/x/sys/unix"
)

// The other members say something on every connection at least each two seconds.
const (
	silenceOfPeer = 5 * time.Second
	listenAgain   = time.Second
	// unheard is how long others may leave unconfirmed what was sent to them.
	unheard = 4 * time.Second
)

// forgetUnheard has the kernel end connections of others to this member that do not confirm what they get. While
// etcd tries to write to one of those, it does not look at the new one that the other has made.
func forgetUnheard(options *transport.ListenerOptions) {
	options.ListenConfig.Control = func(_, _ string, listener syscall.RawConn) error {
		var err error
		failed := listener.Control(func(fd uintptr) { // connections inherit it
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds()))
		})
		return errors.Join(failed, err)
	}
}

// hangUp closes connections that this member has opened to others and on which nothing has come for too long, until
// done. etcd then opens new ones.
//
// etcd means to do that itself, but the transport that it makes for it ignores the time-out (it has both a Dial and a
// DialContext). Without it, a member that was cut off stays without a leader for as long after the cut as the cut
// took, because the kernels try ever more rarely to get through what was sent meanwhile.
func hangUp(done <-chan struct{}, port int) {
	ticker := time.NewTicker(listenAgain)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			hangUpOnce(port, silenceOfPeer)
		}
	}
}

// hangUpOnce closes this process' connections to a port that have been silent for so long.
func hangUpOnce(port int, silence time.Duration) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || !leadsTo(fd, port) {
			continue
		}
		// The descriptor is etcd's, which may close it at any moment and let somebody else have the number.
		ours, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if leadsTo(ours, port) && silentFor(ours) > silence {
			_ = unix.Shutdown(ours, unix.SHUT_RDWR)
		}
		_ = unix.Close(ours)
	}
}

// leadsTo reports whether a descriptor is a connection to a port of another machine.
func leadsTo(fd, port int) bool {
	to, err := unix.Getpeername(fd)
	if err != nil {
		return false
	}
	switch to := to.(type) {
	case *unix.SockaddrInet4:
		return to.Port == port
	case *unix.SockaddrInet6:
		return to.Port == port
	}
	return false
}

// silentFor is how long nothing has come or gone on a connection. Of those that this member sends much on it is 0: a
// database takes long to send, and then long to write.
func silentFor(fd int) time.Duration {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State != tcpEstablished || info.Bytes_acked > maxRequest {
		return 0
	}
	return time.Duration(min(info.Last_data_recv, info.Last_data_sent)) * time.Millisecond
}

const (
	tcpEstablished = 1        // of the kernel's enumeration
	maxRequest     = 32 << 10 // of which a TLS handshake is the largest part
)
