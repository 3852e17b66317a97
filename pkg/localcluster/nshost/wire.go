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

// Bridge is the name of a wire's switch, in the wire's network namespace.
const Bridge = "br0"

// Wire is a switched network: a bridge in a network namespace of its own.
type Wire struct {
	ns   *os.File
	link *netlink.Handle // in the namespace
	br   netlink.Link
}

// NewNetNS makes a network namespace that lives as long as the file is open or somebody is in it.
func NewNetNS() (ns *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("making a network namespace: %w", err)
			return
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
	}()
	<-done
	return ns, err
}

// NewWire makes a bridge with the given addresses in a network namespace. The wire closes ns when it is closed.
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
	lo, err := w.link.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := w.link.LinkSetUp(lo); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = Bridge, MAC("the gateway")
	if err := w.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return err
	}
	if w.br, err = w.link.LinkByName(Bridge); err != nil {
		return err
	}
	if err := addAddrs(w.link, w.br, addrs); err != nil {
		return err
	}
	return w.link.LinkSetUp(w.br)
}

// Close lets go of the wire's namespace: it is gone when nobody else holds it.
func (w *Wire) Close() error {
	w.link.Close()
	return w.ns.Close()
}

// Plug puts one end of a new cable into the bridge and the other into a network namespace, under the given name. The
// cable of the host's life before, which the kernel takes away a little after that, goes first. A host keeps its MAC
// address, as real ones do: its neighbours remember it.
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

// Unplug takes a host's cable out, if there is one.
func (w *Wire) Unplug(host string) error {
	port, err := w.link.LinkByName(Port(host))
	if err != nil {
		return nil // it went with the host
	}
	if err := w.link.LinkDel(port); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unplugging %s: %w", host, err)
	}
	return nil
}

// MAC is the address of a host's network card.
func MAC(host string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(host))
	return append(net.HardwareAddr{0x02}, sum[:5]...)
}

// Port is what the bridge's end of a host's cable is called. It leaves room for a few more letters.
func Port(host string) string {
	if len(host) <= 10 {
		return "p-" + host
	}
	return fmt.Sprintf("p-%x", sha256.Sum256([]byte(host)))[:10]
}

// On runs f on a thread inside the wire's network namespace, e.g. to listen there.
func (w *Wire) On(f func() error) error { return onNetNS(w.ns.Name(), int(w.ns.Fd()), f) }

// eth0 is the name of a host's own interface.
const eth0 = "eth0"

// connect plugs a host in and gives it its addresses.
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

// Configure brings the interface of a running host up with the host's addresses, in place of those that it has, and
// with its default routes.
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

// addAddrs adds addresses to an interface. Nobody else can have them, so an IPv6 address need not be tried first.
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

func setLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

// On runs f on a thread inside the network namespace of the process pid, e.g. to dial from there.
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
		// The thread is not unlocked, so the runtime ends it instead of reusing it in the wrong namespace.
		runtime.LockOSThread()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering the network %s: %w", name, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Dial connects from the host, whatever namespace the caller is in. The address is IP:PORT.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !h.Up() {
		return nil, fmt.Errorf("host %s is down", h.Name)
	}
	var conn net.Conn
	err := On(h.PID(), func() (err error) {
		// A resolver or a second address family would dial on another thread, in another network.
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialling on host %s: %w", h.Name, err)
		}
		conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, ap.String())
		return err
	})
	return conn, err
}
