package localcluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// linkName is the interface of this machine in a cluster's network, at most 15 bytes.
func linkName(cluster string) string {
	if len(cluster) <= 11 {
		return "cor-" + cluster
	}
	return fmt.Sprintf("cor-%x", sha256.Sum256([]byte(cluster)))[:15]
}

// network connects the nodes with each other and with this machine. The kernel removes all of it with the holder.
type network struct {
	wire *nshost.Wire
	nft  int // PID of the process that owns the cluster's nft table; 0 if it has no owner
}

// makeNetwork makes the nodes' bridge and its link to this machine, and lets the nodes reach what this machine reaches.
func makeNetwork(r Record) (*network, error) {
	ns, err := nshost.NewNetNS()
	if err != nil {
		return nil, err
	}
	wire, err := nshost.NewWire(ns, netip.PrefixFrom(r.Wire(), r.Network.Bits()))
	if err != nil {
		return nil, err
	}
	if err := connectMachine(r, wire); err != nil {
		return nil, err
	}
	rules, err := masquerade(r)
	if err != nil {
		return nil, err
	}
	if err := allowForwarding(r); err != nil {
		return nil, err
	}
	return &network{wire: wire, nft: rules}, nil
}

// connectMachine connects this machine with the nodes' bridge.
func connectMachine(r Record, wire *nshost.Wire) error {
	own, err := os.Open("/proc/thread-self/ns/net") // the main thread may be in another namespace
	if err != nil {
		return err
	}
	defer own.Close()
	if err := wire.Plug("machine", own, r.Link); err != nil {
		return err
	}
	link, err := netlink.LinkByName(r.Link)
	if err != nil {
		return fmt.Errorf("finding interface %s: %w", r.Link, err)
	}
	ip := &net.IPNet{IP: r.Machine().AsSlice(), Mask: net.CIDRMask(r.Network.Bits(), 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("adding address %s to interface %s: %w", r.Machine(), r.Link, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting interface %s up: %w", r.Link, err)
	}
	return nil
}

// removeLink removes the interface if it exists: the kernel removes it some time after the bridge's namespace.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("removing interface %s: %w", name, err)
	}
	return nil
}

// tool is a program of the payload, or this machine's if the build has no payload.
func tool(r Record, name string) string {
	path := filepath.Join(r.Payload, name)
	if _, err := os.Stat(path); err != nil {
		return name
	}
	return path
}
