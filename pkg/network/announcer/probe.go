package announcer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// probeWait is how long other machines have to answer a probe.
const probeWait = time.Second

// stranger asks the wire who else has the address, as a machine does that wants one (RFC 5227, section 2.1.1; RFC 4862, section 5.4), and returns the
// hardware address of the first that answers, nil if none does. The probe names no sender, so neighbours learn nothing from it.
func (p place) stranger(ctx context.Context) (net.HardwareAddr, error) {
	mac := p.link.Attrs().HardwareAddr
	if len(mac) != 6 {
		return nil, nil // such a link has no neighbours that answer
	}
	own, err := net.Interfaces() // with arp_ignore=0 the kernel answers on other interfaces of the same wire too
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces of this machine: %w", err)
	}
	wire, err := p.listen()
	if err != nil {
		return nil, err
	}
	defer wire.Close()
	defer context.AfterFunc(ctx, func() { _ = wire.Close() })()
	if err := wire.SetDeadline(time.Now().Add(probeWait)); err != nil {
		return nil, err
	}
	frame, sender := arpProbe([6]byte(mac), p.address), 22
	if p.address.Is6() {
		frame, sender = solicitation([6]byte(mac), p.address), 6
	}
	if _, err := wire.Write(frame); err != nil {
		return nil, fmt.Errorf("sending on %s: %w", p.link.Attrs().Name, err)
	}
	answer := make([]byte, 128)
	for {
		n, err := wire.Read(answer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listening on %s: %w", p.link.Attrs().Name, err)
		}
		from := net.HardwareAddr(answer[sender : sender+6])
		if n >= sender+6 && !slices.ContainsFunc(own, func(i net.Interface) bool { return bytes.Equal(i.HardwareAddr, from) }) {
			return slices.Clone(from), nil
		}
	}
}

// listen opens a socket that gets what machines on the wire say about the address: ARP packets from it, and advertisements of it.
func (p place) listen() (*os.File, error) {
	kind, matches := uint16(etherARP), equal(28, p.address.AsSlice())
	if p.address.Is6() {
		kind = etherIPv6
		matches = slices.Concat(equal(20, []byte{unix.IPPROTO_ICMPV6}), equal(54, []byte{neighborAdvertisement}), equal(62, p.address.AsSlice()))
	}
	program, err := bpf.Assemble(append(matches, bpf.RetConstant{Val: 128}))
	if err != nil {
		return nil, fmt.Errorf("making a filter of packets: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "packets")
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: p.link.Attrs().Index})
	}
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("listening on %s: %w", p.link.Attrs().Name, err)
	}
	return socket, nil
}

// equal is the part of a filter that drops a frame without these bytes at an offset.
func equal(offset int, want []byte) (out []bpf.Instruction) {
	for len(want) > 0 {
		size, value := 1, uint32(want[0])
		if len(want) >= 4 {
			size, value = 4, binary.BigEndian.Uint32(want)
		}
		out = append(out, bpf.LoadAbsolute{Off: uint32(offset), Size: size}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1}, bpf.RetConstant{})
		offset, want = offset+size, want[size:]
	}
	return out
}

// arpProbe is an Ethernet frame with an ARP request for the address from nobody.
func arpProbe(mac [6]byte, address netip.Addr) []byte {
	f := gratuitousARP(mac, address)
	clear(f[28:32]) // the sender's address
	return f
}

// solicitation is an Ethernet frame with a neighbour solicitation for the address from nobody (RFC 4861, section 4.3).
func solicitation(mac [6]byte, address netip.Addr) []byte {
	target := address.As16()
	group := netip.AddrFrom16([16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]})
	body := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	return icmpv6(mac, netip.IPv6Unspecified(), group, body)
}
