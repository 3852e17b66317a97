package nft

import (
	"bytes"
	"encoding/binary"
	"os"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// subscribe opens a netlink socket that receives the kernel's events about nft tables.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "nft events"), nil
}

// Sizes of netlink headers in bytes: of a message, of the nftables part of it, of an attribute; and kinds of messages.
const (
	messageHeader, familyHeader, attributeHeader = unix.NLMSG_HDRLEN, 4, unix.NLA_HDRLEN
	chainEvent                                   = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	ruleGone                                     = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE
	tableGone                                    = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE
)

// affectedBy reports whether one of the messages is about a new chain that drops forwarded packets, or a rule deleted from a chain with
// rules of the gate. kube-proxy causes thousands of other messages, so only the needed attributes are parsed.
func (g *Gate) affectedBy(messages []byte) bool {
	return anyMessage(messages, func(kind uint16, family nftables.TableFamily, body []byte) bool {
		switch kind {
		case chainEvent:
			return drops(body)
		case ruleGone:
			return g.has(chainName(family, text(attribute(body, unix.NFTA_RULE_TABLE)), text(attribute(body, unix.NFTA_RULE_CHAIN))))
		}
		return false
	})
}

// anyMessage reports whether match is true for one of the netlink messages. It stops at a malformed one.
func anyMessage(messages []byte, match func(kind uint16, family nftables.TableFamily, body []byte) bool) bool {
	for len(messages) >= messageHeader+familyHeader {
		size := int(binary.NativeEndian.Uint32(messages))
		if size < messageHeader+familyHeader || size > len(messages) {
			return false
		}
		kind, family := binary.NativeEndian.Uint16(messages[4:]), nftables.TableFamily(messages[messageHeader])
		if match(kind, family, messages[messageHeader+familyHeader:size]) {
			return true
		}
		messages = messages[min(align(size), len(messages)):]
	}
	return false
}

// drops reports whether the attributes of a chain are those of a forward chain with the policy drop.
func drops(chain []byte) bool {
	hook := attribute(attribute(chain, unix.NFTA_CHAIN_HOOK), unix.NFTA_HOOK_HOOKNUM)
	policy := attribute(chain, unix.NFTA_CHAIN_POLICY)
	return len(hook) == 4 && binary.BigEndian.Uint32(hook) == unix.NF_INET_FORWARD &&
		len(policy) == 4 && binary.BigEndian.Uint32(policy) == uint32(nftables.ChainPolicyDrop)
}

// attribute returns the value of the first attribute of a kind, nil if there is none.
func attribute(attributes []byte, kind uint16) []byte {
	for len(attributes) >= attributeHeader {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < attributeHeader || size > len(attributes) {
			return nil
		}
		if binary.NativeEndian.Uint16(attributes[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return attributes[attributeHeader:size]
		}
		attributes = attributes[min(align(size), len(attributes)):]
	}
	return nil
}

// align rounds up to where the next message or attribute begins.
func align(size int) int { return (size + 3) &^ 3 }

func text(value []byte) string { return string(bytes.TrimRight(value, "\x00")) }
