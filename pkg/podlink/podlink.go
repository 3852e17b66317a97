// Package podlink sets what network policies need of the bridge of a node's pods and of its ports: the CNI plugin before
// a pod runs, and the node for the pods that are there when it starts.
package podlink

import (
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Group is the group of links in which the ports of pods are, and nothing else: nft's rules know them by it.
const Group = 25455 // "co"

// Attach puts the port of a new pod into the group, and has its bridge filtered. netns is the pod's network namespace,
// ifName the pod's interface in it.
func Attach(bridge, netns, ifName string) error {
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
	return Filter(bridge)
}

// Adopt puts all ports of a bridge into the group. It is no error if there is no bridge.
func Adopt(bridge string) error {
	link, err := netlink.LinkByName(bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", bridge, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex != link.Attrs().Index || l.Attrs().Group == Group {
			continue
		}
		if err := netlink.LinkSetGroup(l, Group); err != nil && !errors.Is(err, unix.ENODEV) { // a pod may go meanwhile
			return fmt.Errorf("marking %s as a pod's port: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

// settings is the directory that the kernel has if it can hand what passes a bridge to the hooks of IP.
const settings = "/proc/sys/net/bridge"

// Filter hands packets between the ports of a bridge to the hooks of IP, whatever the machine's settings for all bridges
// (net.bridge.bridge-nf-call-iptables) are at the moment. It is no error if there is no bridge.
func Filter(bridge string) error {
	if _, err := os.Stat(settings); err != nil {
		return errors.New("the kernel module br_netfilter is missing; run `modprobe br_netfilter` on the machine")
	}
	link, err := netlink.LinkByName(bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", bridge, err)
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
