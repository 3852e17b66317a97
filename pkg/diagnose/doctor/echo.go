package doctor

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// protocol is how an echo request is sent, in IPv4 or IPv6.
type protocol struct {
	network       string
	header        int // bytes of the IP header
	level, option int // how to say that packets must stay whole
	value         int
	asks, tells   byte // kinds of message
	checksum      bool // the kernel does not make it
}

var (
	echo4 = protocol{"ip4:icmp", 20, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, 8, 0, true}
	echo6 = protocol{"ip6:ipv6-icmp", 40, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, 128, 129, false}
)

// open makes a raw socket to an address.
func (p protocol) open(ctx context.Context, to netip.Addr) (*net.IPConn, error) {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), p.level, p.option, p.value) })
		if err != nil {
			return err
		}
		return failed
	}}
	conn, err := dialer.DialContext(ctx, p.network, to.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.IPConn), nil
}

// request is an echo request that makes a packet of the given size.
func (p protocol) request(id uint16, size int) []byte {
	const least = 8
	b := make([]byte, max(size-p.header, least))
	b[0] = p.asks
	binary.BigEndian.PutUint16(b[4:], id)
	if p.checksum {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// answers reports whether a message is the answer to a request.
func (p protocol) answers(b []byte, id uint16) bool {
	return len(b) >= 8 && b[0] == p.tells && binary.BigEndian.Uint16(b[4:]) == id
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
