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

// linkName is the interface of this machine that leads to a cluster's nodes, at most 15 letters.
func linkName(cluster string) string {
	if len(cluster) <= 11 {
		return "cor-" + cluster
	}
	return fmt.Sprintf("cor-%x", sha256.Sum256([]byte(cluster)))[:15]
}

// network is what connects the nodes with each other and with this machine. All of it is gone when the keeper is.
type network struct {
	wire *nshost.Wire
	nft  int // the process to which the cluster's nft table belongs
}

// makeNetwork makes the wire, its link to this machine, and lets the nodes reach what this machine reaches.
func makeNetwork(r Record) (*network, error) {
	ns, err := nshost.NewNetNS()
	if err != nil {
		return nil, err
	}
	wire, err := nshost.NewWire(ns, netip.PrefixFrom(r.Wire(), r.Network.Bits()))
	if err != nil {
		return nil, err
	}
	if err := plugMachine(r, wire); err != nil {
		return nil, err
	}
	rules, err := masquerade(r)
	if err != nil {
		return nil, err
	}
	if err := passFirewall(r); err != nil {
		return nil, err
	}
	return &network{wire: wire, nft: rules}, nil
}

// plugMachine connects this machine with the wire.
func plugMachine(r Record, wire *nshost.Wire) error {
	own, err := os.Open("/proc/thread-self/ns/net") // the first thread may be in another one: the runtime keeps it
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

// removeLink removes the interface, if it is there: the kernel takes a moment for that when the wire is gone.
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
