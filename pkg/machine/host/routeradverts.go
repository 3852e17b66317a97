package host

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// keepRouterAdverts lets interfaces accept IPv6 router advertisements although the machine forwards packets. Otherwise the
// kernel would drop the default route that it has learnt from them. It must run before forwarding is enabled.
func keepRouterAdverts(l *ledger.Ledger, ips []netip.Addr) {
	for _, name := range append(defaultRoutes(read("/proc/net/ipv6_route")), interfacesOf(ips)...) {
		conf := "net/ipv6/conf/" + name + "/"
		if read(ledger.SysctlFile(conf+"forwarding")) != "0" || read(ledger.SysctlFile(conf+"accept_ra")) != "1" {
			continue // it accepts none today
		}
		if err := l.SetSysctl(conf+"accept_ra", "2"); err != nil {
			logrus.WithField("component", "host").WithError(err).
				Warnf("%s will not hear IPv6 routers any more: set sysctl %saccept_ra=2 on the host", name, conf)
		}
	}
}

// defaultRoutes returns the interfaces of IPv6 default routes in the text of /proc/net/ipv6_route: destination, its
// length, source, its length, next hop, metric, two counters, flags, interface.
func defaultRoutes(table string) []string {
	var out []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) == 10 && strings.Trim(f[0], "0") == "" && f[1] == "00" && f[9] != "lo" && !slices.Contains(out, f[9]) {
			out = append(out, f[9])
		}
	}
	return out
}

// interfacesOf returns the interfaces that have one of the IPv6 addresses.
func interfacesOf(ips []netip.Addr) (names []string) {
	addrs, _ := netlink.AddrList(nil, netlink.FAMILY_V6) // an incomplete list is better than none
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.IP)
		if link, err := netlink.LinkByIndex(a.LinkIndex); err == nil && slices.Contains(ips, ip) {
			names = append(names, link.Attrs().Name)
		}
	}
	return names
}
