package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// subscribe opens a netlink socket that receives the kernel's events about nft tables.
func subscribe() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("listening for changes of nft tables: %w", err)
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for changes of nft tables: %w", err), conn.Close())
	}
	return conn, nil
}

// watch calls changed for events that match, and when events were lost, until ctx is done. It closes the socket. kube-proxy causes
// thousands of events, so match should parse only the attributes that it needs.
func watch(ctx context.Context, events *netlink.Conn, match func(event) bool, changed func()) error {
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	defer events.Close()
	matches := func(m netlink.Message) bool {
		return len(m.Data) >= familyHeader && match(event{uint16(m.Header.Type), nftables.TableFamily(m.Data[0]), m.Data[familyHeader:]})
	}
	for {
		messages, err := events.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS), err == nil && slices.ContainsFunc(messages, matches): // ENOBUFS: events were lost
			changed()
		case err != nil:
			return fmt.Errorf("listening for changes of nft tables: %w", err)
		}
	}
}

// event is a message of the kernel about an object of a table.
type event struct {
	kind       uint16
	family     nftables.TableFamily
	attributes []byte
}

// familyHeader is the size of the header between that of netlink and the attributes, in bytes.
const familyHeader = 4

// The kinds of events.
const (
	chainEvent = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	ruleGone   = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE
	tableGone  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE
)

// affectedBy reports whether an event is about a new chain that drops forwarded packets, or a rule deleted from a chain with rules of
// the gate.
func (g *Gate) affectedBy(e event) bool {
	switch e.kind {
	case chainEvent:
		return drops(e.attributes)
	case ruleGone:
		return g.has(chainName(e.family, text(e.attributes, unix.NFTA_RULE_TABLE), text(e.attributes, unix.NFTA_RULE_CHAIN)))
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
	all, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return nil
	}
	for all.Next() {
		if all.Type() == kind {
			return all.Bytes()
		}
	}
	return nil
}

func text(attributes []byte, kind uint16) string {
	return unix.ByteSliceToString(attribute(attributes, kind))
}

// WatchDeleted calls gone whenever a table of that name may have been deleted, as by `nft flush ruleset`, until ctx is done. The table
// may exist again when gone is called. It returns an error if it cannot receive events.
func WatchDeleted(ctx context.Context, name string, gone func()) error {
	events, err := subscribe()
	if err != nil {
		return err
	}
	return watch(ctx, events, func(e event) bool {
		return e.kind == tableGone && families[e.family]+" "+text(e.attributes, unix.NFTA_TABLE_NAME) == name
	}, gone)
}
