package preflight

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Of linux/netfilter/nfnetlink.h and nf_tables.h.
const (
	nfnlSubsysNFTables = 10
	nftMsgGetGen       = 16
)

// newLink asks the kernel for a link of a kind, with no settings. Whatever it answers but EOPNOTSUPP, it knows it.
func newLink(kind, name string) error {
	info := attribute(unix.IFLA_INFO_KIND, append([]byte(kind), 0))
	body := make([]byte, unix.SizeofIfInfomsg)
	body = append(body, attribute(unix.IFLA_IFNAME, append([]byte(name), 0))...)
	body = append(body, attribute(unix.IFLA_LINKINFO, info)...)
	return ask(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, body)
}

// nftables asks for the generation of the rule set.
func nftables() error {
	return ask(unix.NETLINK_NETFILTER, nfnlSubsysNFTables<<8|nftMsgGetGen, 0, make([]byte, 4)) // 4: struct nfgenmsg
}

// attribute is one netlink attribute, padded.
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// ask sends one netlink message and returns the error that the answer holds, if any.
func ask(protocol int, kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	defer unix.Close(fd)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST)
	m = binary.NativeEndian.AppendUint32(m, 1) // sequence
	m = binary.NativeEndian.AppendUint32(m, 0) // the kernel fills in who we are
	if err := unix.Sendto(fd, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to netlink: %w", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return fmt.Errorf("receiving from netlink: %w", err)
	}
	return answered(answer[:n])
}

// answered is the error in an answer: an error message whose code is not 0.
func answered(answer []byte) error {
	if len(answer) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
