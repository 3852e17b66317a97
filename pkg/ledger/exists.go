package ledger

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// volatile reports whether things of this kind live in the kernel and end with it.
func (k Kind) volatile() bool {
	return slices.Contains([]Kind{Link, NFTTable, Mount, Cgroup, Sysctl, Propagation}, k)
}

// bootID tells this boot of the machine from others.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// exists reports whether something by that name is there now. Kinds that have helpers of their own, which look
// themselves, never exist.
func (l *Ledger) exists(e Entry) bool {
	switch e.Kind {
	case Link:
		_, err := net.InterfaceByName(e.Name) // not /sys, which may show another network namespace
		return err == nil
	case Cgroup:
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			if found, _ := filepath.Glob(filepath.Join(root, e.Name)); len(found) > 0 {
				return true
			}
		}
	case NFTTable:
		return l.TableExists != nil && l.TableExists(e.Name)
	}
	return false
}
