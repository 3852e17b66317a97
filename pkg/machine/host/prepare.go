package host

import (
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// Prepare makes the machine, which has the addresses ips in the cluster, fit for pods. run is coracle's run directory. It
// may run again at any time and then changes nothing.
func Prepare(l *ledger.Ledger, run string, ips []netip.Addr, ipv6 bool) error {
	loadModules()
	if ipv6 {
		keepRouters(l, ips)
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
	if err := standInKmsg(l, run); err != nil {
		return err
	}
	if err := nameMachine(l); err != nil {
		return err
	}
	return Nest("/sys/fs/cgroup")
}
