package config

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// host provides the facts of this machine on which defaults depend. Tests replace it.
type host struct {
	hostname func() (string, error)
	// source returns the source address of the default route, or the zero address.
	source func(v6 bool) netip.Addr
	// addrs are the addresses of all interfaces that are up, those of bridges last. bridge reports whether an address is one of those.
	addrs    func() []netip.Addr
	bridge   func(netip.Addr) bool
	readFile func(name string) ([]byte, error)
	readDir  func(name string) ([]os.DirEntry, error)
}

func thisHost() host {
	return host{hostname: os.Hostname, source: routeSource, addrs: upAddrs, bridge: onBridge, readFile: os.ReadFile, readDir: os.ReadDir}
}

// routeSource finds the source address by connecting a datagram socket, which sends no packet.
func routeSource(v6 bool) netip.Addr {
	network, outside := "udp4", "203.0.113.1:9" // addresses for documentation: only a default route leads there
	if v6 {
		network, outside = "udp6", "[2001:db8::1]:9"
	}
	conn, err := net.Dial(network, outside)
	if err != nil {
		return netip.Addr{} // no route
	}
	defer conn.Close()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return local.Addr().Unmap()
}

func upAddrs() []netip.Addr {
	others, bridges := upAddrsByKind()
	return append(others, bridges...)
}

func onBridge(a netip.Addr) bool {
	_, bridges := upAddrsByKind()
	return slices.Contains(bridges, a)
}

// upAddrsByKind returns the addresses of interfaces that are up: apart those of bridges, most of which connect the host with its own
// containers and virtual machines only.
func upAddrsByKind() (others, bridges []netip.Addr) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, nil // then there is nothing to choose from
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil || link.Flags&net.FlagUp == 0 {
			continue
		}
		to := &others
		if _, err := os.Stat("/sys/class/net/" + link.Name + "/bridge"); err == nil {
			to = &bridges
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				*to = append(*to, prefix.Addr().Unmap())
			}
		}
	}
	return others, bridges
}

// nodeIP returns the source address of the default route, or else the first other address that Kubernetes accepts, or else the
// zero address. It skips addresses in ours, which coracle gives to bridges.
func (h host) nodeIP(v6 bool, ours []netip.Prefix) (netip.Addr, AddressSource) {
	fits := func(a netip.Addr) bool {
		return a.IsValid() && a.Is6() == v6 && unusable(a) == "" && !StandIn(a) &&
			!slices.ContainsFunc(ours, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if a := h.source(v6); a.IsValid() && a.Is6() == v6 && unusable(a) == "" {
		return a, RouteAddress
	}
	for _, a := range h.addrs() {
		if fits(a) {
			if h.bridge != nil && h.bridge(a) {
				return a, BridgeAddress
			}
			return a, LinkAddress
		}
	}
	return netip.Addr{}, NoAddress
}

// The host's list of name servers, and systemd-resolved's list of those behind its stub.
const (
	etcResolvConf     = "/etc/resolv.conf"
	systemdResolvConf = "/run/systemd/resolve/resolv.conf"
)

// resolvConf returns the given file, or else the host's. If the host's lists only loopback addresses and systemd-resolved runs,
// it returns the file with the name servers of systemd-resolved.
func (d *decoder) resolvConf(v *value) string {
	if v.one().text != "" {
		return d.file(v)
	}
	path := etcResolvConf
	if data, err := d.host.readFile(etcResolvConf); err == nil && LoopbackOnly(data) {
		if _, err := d.host.readFile(systemdResolvConf); err == nil {
			path = systemdResolvConf
		}
	}
	v.derive(path)
	return path
}

// LoopbackOnly reports whether a resolv.conf lists name servers that no pod can reach, and no others.
func LoopbackOnly(data []byte) bool {
	found := false
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if err != nil || !addr.IsLoopback() {
			return false
		}
		found = true
	}
	return found
}

// derive records a value that depends on the host or on another setting. Its origin is the note in the table.
func (v *value) derive(texts ...string) {
	v.items, v.layer = nil, derived
	for _, t := range texts {
		v.deriveOne(t, v.setting.note)
	}
}

// deriveOne adds a derived item with its origin.
func (v *value) deriveOne(text, how string) {
	v.items, v.layer = append(v.items, item{text, origin{derived, how}}), derived
}
