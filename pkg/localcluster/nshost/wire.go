package nshost

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bridge is the name of a wire's bridge, in the wire's network namespace.
const Bridge = "br0"

// Wire is an Ethernet segment that connects hosts: a bridge in its own network namespace.
type Wire struct {
	ns   *os.File
	link *netlink.Handle // in the namespace
	br   netlink.Link
}

// NewNetNS makes a network namespace, which exists as long as the file is open or a process is in it.
func NewNetNS() (ns *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("making a network namespace: %w", err)
			return
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
	}()
	<-done
	return ns, err
}

// NewWire makes a bridge with the given addresses in a network namespace. Close closes ns too.
func NewWire(ns *os.File, addrs ...netip.Prefix) (*Wire, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()))
	if err != nil {
		return nil, fmt.Errorf("entering the wire's network: %w", err)
	}
	w := &Wire{ns: ns, link: handle}
	if err := w.makeBridge(addrs); err != nil {
		handle.Close()
		return nil, fmt.Errorf("making the wire: %w", err)
	}
	return w, nil
}

func (w *Wire) makeBridge(addrs []netip.Prefix) error {
	if err := setLoopbackUp(w.link); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = Bridge, MAC("the gateway")
	if err := w.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return err
	}
	var err error
	if w.br, err = w.link.LinkByName(Bridge); err != nil {
		return err
	}
	if err := addAddrs(w.link, w.br, addrs); err != nil {
		return err
	}
	return w.link.LinkSetUp(w.br)
}

// Close closes the wire's namespace, which the kernel removes if no other process uses it.
func (w *Wire) Close() error {
	w.link.Close()
	return w.ns.Close()
}

// Plug connects a network namespace with the bridge by a new veth pair, whose end in the namespace gets the given name. It removes the
// pair of the host's last boot first, which the kernel removes with a delay. A host keeps its MAC address, which its neighbours
// have cached.
func (w *Wire) Plug(host string, into *os.File, name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = Port(host), w.br.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerHardwareAddr: MAC(host), PeerNamespace: netlink.NsFd(into.Fd())}
	if err := w.Unplug(host); err != nil {
		return err
	}
	if err := w.link.LinkAdd(veth); err != nil {
		return fmt.Errorf("plugging %s into the wire: %w", host, err)
	}
	port, err := w.link.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	return w.link.LinkSetUp(port)
}

// Unplug removes a host's veth pair, if there is one.
func (w *Wire) Unplug(host string) error {
	port, err := w.link.LinkByName(Port(host))
	if err != nil {
		return nil // removed with the host
	}
	if err := w.link.LinkDel(port); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unplugging %s: %w", host, err)
	}
	return nil
}

// MAC is the MAC address of a host.
func MAC(host string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(host))
	return append(net.HardwareAddr{0x02}, sum[:5]...)
}

// Port is the name of a host's interface on the bridge. It is at most 10 bytes long, so that callers can add a suffix.
func Port(host string) string {
	if len(host) <= 10 {
		return "p-" + host
	}
	return fmt.Sprintf("p-%x", sha256.Sum256([]byte(host)))[:10]
}

// On runs f on a thread in the wire's network namespace, for example to listen there.
func (w *Wire) On(f func() error) error { return onNetNS(w.ns.Name(), int(w.ns.Fd()), f) }

// eth0 is the name of a host's own interface.
const eth0 = "eth0"

// connect plugs a host into its wire and configures its addresses.
func (h *Host) connect() error {
	if h.Wire == nil {
		return nil
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.PID()))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := h.Wire.Plug(h.Name, ns, eth0); err != nil {
		return err
	}
	return h.Configure()
}

// Configure replaces the addresses of a running host's interface by the host's Addrs, sets the interface up and adds the default routes.
func (h *Host) Configure() error {
	ns, err := netns.GetFromPid(h.PID())
	if err != nil {
		return err
	}
	defer ns.Close()
	link, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer link.Close()
	dev, err := link.LinkByName(eth0)
	if err != nil {
		return fmt.Errorf("finding %s: %w", eth0, err)
	}
	if err := dropAddrs(link, dev); err != nil {
		return err
	}
	if err := addAddrs(link, dev, h.Addrs); err != nil {
		return err
	}
	if err := link.LinkSetUp(dev); err != nil {
		return err
	}
	for _, gateway := range h.Gateways {
		if err := link.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Gw: gateway.AsSlice()}); err != nil {
			return fmt.Errorf("adding the default route by %s: %w", gateway, err)
		}
	}
	return nil
}

// dropAddrs removes all addresses of an interface.
func dropAddrs(link *netlink.Handle, dev netlink.Link) error {
	old, err := link.AddrList(dev, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range old {
		if err := link.AddrDel(dev, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing address %s: %w", a.IPNet, err)
		}
	}
	return nil
}

// addAddrs adds addresses to an interface. They are unique on the wire, so duplicate address detection is skipped.
func addAddrs(link *netlink.Handle, dev netlink.Link, addrs []netip.Prefix) error {
	for _, a := range addrs {
		ip := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		address := &netlink.Addr{IPNet: ip}
		if a.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := link.AddrAdd(dev, address); err != nil {
			return fmt.Errorf("adding address %s: %w", a, err)
		}
	}
	return nil
}

func setLoopbackUp(link *netlink.Handle) error {
	lo, err := link.LinkByName("lo")
	if err == nil {
		err = link.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

// On runs f on a thread in the network namespace of the process pid, for example to dial from there.
func On(pid int, f func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	return onNetNS(ns.Name(), int(ns.Fd()), f)
}

func onNetNS(name string, fd int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so the runtime ends it with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering the network %s: %w", name, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Dial connects from the host's network. The address is IP:PORT.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !h.Up() {
		return nil, fmt.Errorf("host %s is down", h.Name)
	}
	var conn net.Conn
	err := On(h.PID(), func() (err error) {
		// With a name or two address families, Go would dial on another thread, in another namespace.
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialling on host %s: %w", h.Name, err)
		}
		conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, ap.String())
		return err
	})
	return conn, err
}
