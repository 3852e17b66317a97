package host

import (
	"net/netip"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
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
	if err := noteDaemons(l, Probe()); err != nil {
		return err
	}
	return DelegateCgroups("/sys/fs/cgroup")
}

// noteDaemons notes what the kubelet and containerd tell the machine's logind and AppArmor.
func noteDaemons(l *ledger.Ledger, f Facts) error {
	if f.Logind {
		if err := l.MkdirAll(filepath.Dir(footprint.LogindConfig), 0o755); err != nil {
			return err
		}
		if err := l.NoteFile(footprint.LogindConfig); err != nil {
			return err
		}
	}
	if f.AppArmor {
		return l.Note(ledger.Entry{Kind: ledger.AppArmor, Name: footprint.AppArmorProfile})
	}
	return nil
}
