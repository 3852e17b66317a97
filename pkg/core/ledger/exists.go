package ledger

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LinkAlias is the alias of links that coracle makes. It identifies them even if the ledger is lost.
const LinkAlias = "coracle"

// RuleComment is the comment of rules that coracle adds to nft chains of other programs.
const RuleComment = "coracle"

// volatile reports whether things of this kind live in the kernel, so that they end with the boot.
func (k Kind) volatile() bool {
	return slices.Contains([]Kind{Link, NFTTable, NFTRule, Mount, Cgroup, Sysctl, Propagation}, k)
}

// bootID identifies this boot of the machine.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// Foreign reports whether a link, nft table or cgroup exists that is not in the ledger. Call it after Note, which records
// things that do not exist yet.
func (l *Ledger) Foreign(e Entry) (bool, error) {
	if !l.exists(e) {
		return false, nil
	}
	entries, err := l.Entries()
	return !slices.ContainsFunc(entries, func(h Entry) bool { return h.Kind == e.Kind && h.Name == e.Name && h.Current() }), err
}

// exists reports whether something with that name exists and does not bear coracle's mark. It is false for the kinds that
// MkdirAll, Claim, NoteFile and SetSysctl note, because these look themselves.
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
