package ledger

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LinkAlias is the alias of a link that we made: it tells our own from others' even when the ledger is lost.
const LinkAlias = "coracle"

// RuleComment is the comment of a rule that we added to an nft chain of others.
const RuleComment = "coracle"

// volatile reports whether things of this kind live in the kernel and end with it.
func (k Kind) volatile() bool {
	return slices.Contains([]Kind{Link, NFTTable, NFTRule, Mount, Cgroup, Sysctl, Propagation}, k)
}

// bootID tells this boot of the machine from others.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// Foreign reports whether a link, nft table or cgroup is there that the ledger does not know to be ours. It is to be
// asked after Note, which enters what is not there yet.
func (l *Ledger) Foreign(e Entry) (bool, error) {
	if !l.exists(e) {
		return false, nil
	}
	entries, err := l.Entries()
	return !slices.ContainsFunc(entries, func(h Entry) bool { return h.Kind == e.Kind && h.Name == e.Name && h.Current() }), err
}

// exists reports whether something by that name is there now that is not marked as ours. Kinds that have helpers of their own, which look
// themselves, never exist.
func (l *Ledger) exists(e Entry) bool {
	switch e.Kind {
	case Link:
		_, err := net.InterfaceByName(e.Name) // not /sys, which may show another network namespace
		alias, _ := os.ReadFile(filepath.Join("/sys/class/net", e.Name, "ifalias"))
		return err == nil && strings.TrimSpace(string(alias)) != LinkAlias
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
