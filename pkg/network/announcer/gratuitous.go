package announcer

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The types of Ethernet frames.
const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
)

// neighborAdvertisement is a type of ICMPv6 messages.
const neighborAdvertisement = 136

// announce tells all neighbours on the wire that the address is here now: by a gratuitous ARP request, or an unsolicited neighbour advertisement.
func (p place) announce(address netip.Addr) error {
	mac := p.link.Attrs().HardwareAddr
	if len(mac) != 6 {
		return nil // such a link has no neighbours that learn addresses
	}
	frame, kind := gratuitousARP([6]byte(mac), address), uint16(etherARP)
	if address.Is6() {
		frame, kind = unsolicitedAdvertisement([6]byte(mac), address), etherIPv6
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: p.link.Attrs().Index, Halen: 6}
	copy(to.Addr[:], frame[:6])
	if err := unix.Sendto(fd, frame, 0, to); err != nil {
		return fmt.Errorf("sending on %s: %w", p.link.Attrs().Name, err)
	}
	return nil
}

// gratuitousARP is an Ethernet frame with an ARP request for the address from the address itself (RFC 5227, section 3).
func gratuitousARP(mac [6]byte, address netip.Addr) []byte {
	f := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	f = append(f, mac[:]...)
	f = binary.BigEndian.AppendUint16(f, etherARP)
	f = append(f, 0, 1, 0x08, 0, 6, 4, 0, 1) // Ethernet, IPv4, their lengths, request
	f = append(f, mac[:]...)
	f = append(f, address.AsSlice()...)
	f = append(f, 0, 0, 0, 0, 0, 0)
	return append(f, address.AsSlice()...)
}

// unsolicitedAdvertisement is an Ethernet frame with a neighbour advertisement to all nodes, which overrides what they know (RFC 4861, section 7.2.6).
func unsolicitedAdvertisement(mac [6]byte, address netip.Addr) []byte {
	body := []byte{neighborAdvertisement, 0, 0, 0, 0x20, 0, 0, 0} // the type, room for the checksum, the override flag
	body = append(body, address.AsSlice()...)
	body = append(append(body, 2, 1), mac[:]...) // the target's link-layer address, in units of 8 bytes
	return icmpv6(mac, address, netip.MustParseAddr("ff02::1"), body)
}

// icmpv6 is an Ethernet frame with an ICMPv6 message to a group of the wire. The checksum in body is zero.
func icmpv6(mac [6]byte, from, group netip.Addr, body []byte) []byte {
	binary.BigEndian.PutUint16(body[2:], checksum(from, group, body))
	to := group.As16()
	f := append([]byte{0x33, 0x33}, to[12:]...)
	f = append(f, mac[:]...)
	f = binary.BigEndian.AppendUint16(f, etherIPv6)
	f = append(f, 0x60, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(body)))
	f = append(f, unix.IPPROTO_ICMPV6, 255)
	f = append(append(f, from.AsSlice()...), to[:]...)
	return append(f, body...)
}

// checksum is that of ICMPv6, over a pseudo-header and a body of an even length whose checksum is zero.
func checksum(from, to netip.Addr, body []byte) uint16 {
	data := append(from.AsSlice(), to.AsSlice()...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(body)))
	data = append(data, 0, 0, 0, unix.IPPROTO_ICMPV6)
	data = append(data, body...)
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
