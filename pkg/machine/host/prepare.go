package host

import (
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// Prepare sets the machine up for pods. ips are the node's addresses, run is coracle's run directory. It can be called
// again at any time and then changes nothing.
func Prepare(l *ledger.Ledger, run string, ips []netip.Addr, ipv6 bool) error {
	loadModules()
	if ipv6 {
		keepRouterAdverts(l, ips)
	}
	if err := setSysctls(l, ipv6); err != nil {
		return err
	}
	if err := shareRoot(l); err != nil {
		return err
	}
	if err := shareNetNS(l); err != nil {
		return err
	}
	if err := ensureKmsg(l, run); err != nil {
		return err
	}
	if err := ensureMachineID(l); err != nil {
		return err
	}
	return DelegateCgroups("/sys/fs/cgroup")
}
