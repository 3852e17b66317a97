package member

import (
	"errors"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

// Every live peer sends something on each connection at least every two seconds.
const (
	peerSilence   = 5 * time.Second // after which a connection is closed
	checkInterval = time.Second
	// ackTimeout is how long a peer may leave data unacknowledged.
	ackTimeout = 4 * time.Second
)

// prepareAccepted makes the kernel close accepted peer connections whose peer does not acknowledge data for ackTimeout.
// A stream writer of etcd (rafthttp/stream.go) that is blocked in a write takes no newer connection of the same peer.
//
// It also avoids BBR where that is the host's default: Linux's first version of it mistakes a few small messages on a network that loses one of seven
// packets for a slow network, and then spaces them by seconds. Databases are sent on connections that the sender opens, and keep it.
func prepareAccepted(options *transport.ListenerOptions) {
	options.ListenConfig.Control = func(_, _ string, listener syscall.RawConn) error {
		var err error
		failed := listener.Control(func(fd uintptr) { // connections inherit it
			sockets.RepeatOften(int(fd))
			if name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err == nil && name == "bbr" {
				_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
			}
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTimeout.Milliseconds()))
		})
		return errors.Join(failed, err)
	}
}

// closeSilent closes connections to peers on which nothing has arrived for peerSilence, until done is closed. etcd then opens
// new ones.
//
// etcd means to do this itself, but client/pkg/transport.NewTimeoutTransport sets Dial on a transport that also has a
// DialContext, and net/http ignores Dial then, so the read time-out is never set. Without it, a member that was cut off stays
// without a leader for as long after the cut as the cut took, because TCP's retransmissions become ever rarer. This can go
// when NewTimeoutTransport sets DialContext.
func closeSilent(done <-chan struct{}, port int) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			closeSilentOnce(port, peerSilence)
		}
	}
}

// closeSilentOnce closes this process' connections to a port of other machines that have been silent for longer than silence, and makes the others repeat
// often what is lost: etcd has no place to set that where it dials.
func closeSilentOnce(port int, silence time.Duration) {
	for _, fd := range sockets.Descriptors() {
		if leadsTo(fd, port) {
			sockets.RepeatOften(fd)
			sockets.Shutdown(fd, func(fd int) bool { return leadsTo(fd, port) && silentFor(fd) > silence })
		}
	}
}

// leadsTo reports whether a descriptor is a connection to a port of another machine.
func leadsTo(fd, port int) bool {
	to := sockets.Address(unix.Getpeername(fd))
	return to.IsValid() && int(to.Port()) == port
}

// silentFor is how long nothing was sent or received on a connection. It is 0 for connections on which this member has sent
// more than maxRequest: those transfer a database, which takes long to send, and then the peer takes long to write it.
func silentFor(fd int) time.Duration {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State != tcpEstablished || info.Bytes_acked > maxRequest {
		return 0
	}
	return time.Duration(min(info.Last_data_recv, info.Last_data_sent)) * time.Millisecond
}

const (
	tcpEstablished = 1        // TCP_ESTABLISHED of the kernel
	maxRequest     = 32 << 10 // bytes; a TLS handshake is the largest part of a stream's request
)
