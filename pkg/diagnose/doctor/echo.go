package doctor

import (
	"context"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// protocol has the constants for echo requests in IPv4 or IPv6.
type protocol struct {
	network              string
	number               int // of the ICMP protocol
	header               int // bytes of the IP header
	level, option, value int // of the socket option that forbids fragments
	request, reply       icmp.Type
}

var (
	echo4 = protocol{"ip4:icmp", unix.IPPROTO_ICMP, 20, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	echo6 = protocol{"ip6:ipv6-icmp", unix.IPPROTO_ICMPV6, 40, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE,
		ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
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

// message returns an echo request that makes a packet of the given size.
func (p protocol) message(id, size int) ([]byte, error) {
	const header = 8
	m := icmp.Message{Type: p.request, Body: &icmp.Echo{ID: id, Data: make([]byte, max(size-p.header-header, 0))}}
	return m.Marshal(nil) // for IPv6 the kernel adds the checksum
}

// answers reports whether a message is the answer to a request.
func (p protocol) answers(b []byte, id int) bool {
	m, err := icmp.ParseMessage(p.number, b)
	if err != nil || m.Type != p.reply {
		return false
	}
	echo, ok := m.Body.(*icmp.Echo)
	return ok && echo.ID == id
}
