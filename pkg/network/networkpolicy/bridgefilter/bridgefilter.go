// Package bridgefilter prepares the bridge of a node's pods, and its ports, for network policies. The CNI plugin does so for each new
// pod, and the node for existing pods when the first policy comes.
package bridgefilter

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Group is the interface group of the ports of pods, and of nothing else. nft rules match ports by it.
const Group = 25455 // "co"

// Table is the name of the nft tables that enforce policies.
const Table = "coracle-policy"

// ErrNoFilter is the error of EnableNetfilter on a machine whose bridges cannot pass packets to the IP hooks of nftables.
var ErrNoFilter = errors.New("the kernel module br_netfilter is missing; run `modprobe br_netfilter` on the machine")

// Attach puts the port of a new pod into the group, and filters its bridge. Without policies it returns no error, because the node calls MarkPorts and EnableNetfilter when the first policy
// comes. It never returns ErrNoFilter, because pods without policies run on such machines as well.
func Attach(bridge, port string) error {
	err := EnableNetfilter(bridge)
	if errors.Is(err, ErrNoFilter) {
		err = nil
	}
	if err = errors.Join(mark(port), err); err != nil && governed() {
		return err
	}
	return nil
}

// mark puts the port of a pod into the group.
func mark(port string) error {
	link, err := netlink.LinkByName(port)
	if err == nil {
		err = netlink.LinkSetGroup(link, Group)
	}
	if err != nil {
		return fmt.Errorf("marking the pod's port %s: %w", port, err)
	}
	return nil
}

// governed reports whether there may be policies: their table is written before a pod is attached.
func governed() bool {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(Table)))
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	return !errors.Is(err, unix.ENOENT)
}

// MarkPorts puts all veth ports of a bridge into the group. A missing bridge is no error.
func MarkPorts(bridge string) error {
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
		if failed := netlink.LinkSetGroup(l, Group); failed != nil && !errors.Is(failed, unix.ENODEV) { // a pod may be deleted meanwhile
			err = errors.Join(err, fmt.Errorf("marking %s as a pod's port: %w", l.Attrs().Name, failed))
		}
	}
	return err
}

// listTries is how often links are listed at most.
const listTries = 5

// list lists links again if some were added or deleted meanwhile. The last result is returned with the error, and may be incomplete.
func list(all func() ([]netlink.Link, error)) (links []netlink.Link, err error) {
	for range listTries {
		if links, err = all(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return links, err
}

// brNetfilterDir is the directory that exists if the kernel module br_netfilter is loaded.
const brNetfilterDir = "/proc/sys/net/bridge"

// EnableNetfilter makes packets between the ports of a bridge pass the IP hooks of nftables, whatever the sysctls for all bridges
// (net.bridge.bridge-nf-call-iptables) are. A missing bridge is no error.
func EnableNetfilter(bridge string) error {
	if _, err := os.Stat(brNetfilterDir); err != nil {
		return ErrNoFilter
	}
	link, err := netlink.LinkByName(bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", bridge, err)
	}
	if netfilterEnabled(link.Attrs().Index) {
		return nil // setting it again would notify all watchers of links
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

// netfilterEnabled reports whether a bridge passes IPv4 and IPv6 to the IP hooks; false if that cannot be read.
func netfilterEnabled(bridge int) bool {
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

// attribute returns the value of the netlink attribute of a kind, nil if there is none.
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
