// Package bridgefilter sets what network policies need of the bridge of a node's pods and of its ports: the CNI plugin before
// a pod runs, and the node for the pods that are there when policies come.
package bridgefilter

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Group is the group of links in which the ports of pods are, and nothing else: nft's rules know them by it.
const Group = 25455 // "co"

// Table is the name of the nft tables with which policies are in force.
const Table = "coracle-policy"

// ErrNoFilter is the error of Filter on a machine whose bridges cannot hand packets to the hooks of IP at all.
var ErrNoFilter = errors.New("the kernel module br_netfilter is missing; run `modprobe br_netfilter` on the machine")

// Attach puts the port of a new pod into the group, and has its bridge filtered. netns is the pod's network namespace,
// ifName the pod's interface in it. What goes wrong is an error only while there are policies: when they come, Adopt and
// Filter do it again. ErrNoFilter is none at all, as pods run on such machines too.
func Attach(bridge, netns, ifName string) error {
	err := Filter(bridge)
	if errors.Is(err, ErrNoFilter) {
		err = nil
	}
	if err = errors.Join(mark(netns, ifName), err); err != nil && governed() {
		return err
	}
	return nil
}

// mark puts the port of a pod into the group.
func mark(netns, ifName string) error {
	var port int
	err := ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlink.LinkByName(ifName)
		if err == nil {
			port = link.Attrs().ParentIndex
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("looking for the pod's interface %s: %w", ifName, err)
	}
	link, err := netlink.LinkByIndex(port)
	if err == nil {
		err = netlink.LinkSetGroup(link, Group)
	}
	if err != nil {
		return fmt.Errorf("marking the pod's port: %w", err)
	}
	return nil
}

// governed reports whether there may be policies: no pod is attached before their table is written.
func governed() bool {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(Table)))
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	return !errors.Is(err, unix.ENOENT)
}

// Adopt puts all ports of pods of a bridge into the group. It is no error if there is no bridge.
func Adopt(bridge string) error {
	link, err := netlink.LinkByName(bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", bridge, err)
	}
	links, err := list(netlink.LinkList)
	if err != nil {
		err = fmt.Errorf("listing links: %w", err)
	}
	for _, l := range links {
		if l.Type() != "veth" || l.Attrs().MasterIndex != link.Attrs().Index || l.Attrs().Group == Group {
			continue
		}
		if failed := netlink.LinkSetGroup(l, Group); failed != nil && !errors.Is(failed, unix.ENODEV) { // a pod may go meanwhile
			err = errors.Join(err, fmt.Errorf("marking %s as a pod's port: %w", l.Attrs().Name, failed))
		}
	}
	return err
}

// listTries is how often links are listed while some come and go.
const listTries = 5

// list asks for all links again if some came or went meanwhile. Its last answer is of use even then, though not whole.
func list(all func() ([]netlink.Link, error)) (links []netlink.Link, err error) {
	for range listTries {
		if links, err = all(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return links, err
}

// settings is the directory that the kernel has if it can hand what passes a bridge to the hooks of IP.
const settings = "/proc/sys/net/bridge"

// Filter hands packets between the ports of a bridge to the hooks of IP, whatever the machine's settings for all bridges
// (net.bridge.bridge-nf-call-iptables) are at the moment. It is no error if there is no bridge.
func Filter(bridge string) error {
	if _, err := os.Stat(settings); err != nil {
		return ErrNoFilter
	}
	link, err := netlink.LinkByName(bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", bridge, err)
	}
	if filters(link.Attrs().Index) {
		return nil // each change is told to all who listen for links
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(link.Attrs().Index)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_BR_NF_CALL_IPTABLES, []byte{1})
	data.AddRtAttr(nl.IFLA_BR_NF_CALL_IP6TABLES, []byte{1})
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	request.AddData(msg)
	request.AddData(info)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("setting nf_call_iptables of %s: %w", bridge, err)
	}
	return nil
}

// filters reports whether a bridge is known to hand IPv4 and IPv6 to the hooks of IP.
func filters(bridge int) bool {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(bridge)
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	request.AddData(msg)
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil || len(answers) != 1 || len(answers[0]) < unix.SizeofIfInfomsg {
		return false
	}
	info := attribute(answers[0][unix.SizeofIfInfomsg:], unix.IFLA_LINKINFO)
	data := attribute(info, nl.IFLA_INFO_DATA)
	return slices.Equal(attribute(data, nl.IFLA_BR_NF_CALL_IPTABLES), []byte{1}) &&
		slices.Equal(attribute(data, nl.IFLA_BR_NF_CALL_IP6TABLES), []byte{1})
}

// attribute is the value of the attribute of a type, nil if there is none.
func attribute(of []byte, kind uint16) []byte {
	all, err := nl.ParseRouteAttr(of)
	if err != nil {
		return nil
	}
	for _, a := range all {
		if a.Attr.Type&^unix.NLA_F_NESTED == kind {
			return a.Value
		}
	}
	return nil
}
