package servicelb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// socket is a listening socket on the node.
type socket struct {
	port  port
	inode uint32 // 0 for sockets of the kernel
}

// The states of listening sockets, as the bits of the kernel's interface.
const (
	tcpListen      = 1 << 10
	udpUnconnected = 1 << 7
)

// listening returns the sockets that are bound to all addresses or to one of the node's own, and for each protocol the error
// if not all sockets could be listed. Of UDP sockets on ports that the kernel gives to clients it returns those on wanted
// ports. It asks the kernel for listening sockets only, because there may be very many connections.
func listening(wanted []port, own []netip.Addr) (out []socket, unseen map[corev1.Protocol]error) {
	unseen = map[corev1.Protocol]error{}
	first, last := uint16(32768), uint16(60999)
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &first, &last) // it has this form
	}
	for _, kind := range []struct {
		protocol corev1.Protocol
		number   uint8
		states   uint32
	}{{corev1.ProtocolTCP, unix.IPPROTO_TCP, tcpListen}, {corev1.ProtocolUDP, unix.IPPROTO_UDP, udpUnconnected}} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			err := dump(family, kind.number, kind.states, func(at netip.AddrPort, inode uint32) {
				p := port{int32(at.Port()), kind.protocol}
				client := p.protocol == corev1.ProtocolUDP && at.Port() >= first && at.Port() <= last
				if (!client || slices.Contains(wanted, p)) && (at.Addr().IsUnspecified() || slices.Contains(own, at.Addr())) {
					out = append(out, socket{p, inode})
				}
			})
			if err != nil {
				unseen[kind.protocol] = fmt.Errorf("asking the kernel for %s sockets: %w", kind.protocol, err)
			}
		}
	}
	return out, unseen
}

// The layout of the kernel's inet_diag_req_v2 and inet_diag_msg.
const (
	diagRequest = 56
	diagMessage = 72
	diagPort    = 4 // of the local end, in network order
	diagAddress = 8
	diagInode   = 68
)

// dump calls found with all sockets in some states.
func dump(family, protocol uint8, states uint32, found func(at netip.AddrPort, inode uint32)) error {
	body := make([]byte, diagRequest)
	body[0], body[1] = family, protocol
	binary.NativeEndian.PutUint32(body[4:], states)
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.AddRawData(body)
	err := request.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(m []byte) bool {
		if len(m) < diagMessage {
			return true
		}
		ip := netip.AddrFrom4([4]byte(m[diagAddress:]))
		if m[0] == unix.AF_INET6 {
			ip = netip.AddrFrom16([16]byte(m[diagAddress:])).Unmap()
		}
		found(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(m[diagPort:])), binary.NativeEndian.Uint32(m[diagInode:]))
		return true
	})
	if errors.Is(err, netlink.ErrDumpInterrupted) { // sockets were opened or closed meanwhile
		return nil
	}
	return err
}

// holders describes the processes that hold the sockets, by inode.
func holders(sockets []socket) map[uint32]string {
	out := map[uint32]string{}
	for _, s := range sockets {
		out[s.inode] = "a process that cannot be seen from here"
		if s.inode == 0 {
			out[s.inode] = "the kernel"
		}
	}
	if len(out) == 0 {
		return out
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		text, isSocket := strings.CutPrefix(target, "socket:[")
		inode, parseErr := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32)
		if err != nil || !isSocket || parseErr != nil {
			continue
		}
		if _, asked := out[uint32(inode)]; asked {
			pid := strings.Split(fd, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm") // it may have ended just now
			out[uint32(inode)] = fmt.Sprintf("%s (pid %s)", cmp.Or(strings.TrimSpace(string(name)), "a process"), pid)
		}
	}
	return out
}
