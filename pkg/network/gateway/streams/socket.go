package streams

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setOption turns an option of a socket on.
func setOption(conn syscall.RawConn, level, option int) error {
	var failed error
	err := conn.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 1) })
	if err != nil {
		return err
	}
	return failed
}

// sentTo returns the address to which a datagram was sent, from its control messages. (Those of x/net would not send from an IPv4 address on a
// socket of both families.)
func sentTo(control []byte) (netip.Addr, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&m.Data[0]))
			return netip.AddrFrom16(info.Addr), true
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&m.Data[0]))
			return netip.AddrFrom4(info.Addr), true
		}
	}
	return netip.Addr{}, false
}

// sentFrom returns the control message that sends a datagram from an address. The interface is left to the routes.
func sentFrom(address netip.Addr) []byte {
	if address.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: address.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: address.As16()})
}
