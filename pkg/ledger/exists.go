package ledger

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
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
func exists(e Entry) bool {
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
		return slices.Contains(Tables(), e.Name)
	}
	return false
}

// families are nft's names of table families.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// TableName is how an entry names an nft table: "ip kube-proxy".
func TableName(t *nftables.Table) string { return families[t.Family] + " " + t.Name }

// Tables lists the nft tables of this network namespace; nothing where the kernel or our rights do not allow it.
func Tables() (names []string) {
	conn, err := nftables.New()
	if err != nil {
		return nil
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil
	}
	for _, t := range tables {
		names = append(names, TableName(t))
	}
	return names
}
