package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MkdirAll makes a directory with its missing parents and notes those that were missing.
func (l *Ledger) MkdirAll(path string, mode fs.FileMode) error {
	var missing []Entry
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("making directory %s: %w", path, err)
		}
		missing = append(missing, Entry{Kind: Dir, Name: p})
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Reverse(missing)
	if err := l.Note(missing...); err != nil {
		return err
	}
	return os.MkdirAll(path, mode)
}

// Claim is MkdirAll for a directory that only coracle uses: if it exists and is empty, its future content is noted.
func (l *Ledger) Claim(path string, mode fs.FileMode) error {
	if files, err := os.ReadDir(path); err == nil && len(files) == 0 {
		entries, err := l.Entries()
		if err != nil {
			return err
		}
		if slices.Contains(entries, Entry{Kind: Dir, Name: path}) {
			return nil
		}
		return l.Note(Entry{Kind: Contents, Name: path})
	}
	return l.MkdirAll(path, mode)
}

// NoteFile notes a file that is about to be written, unless it exists.
func (l *Ledger) NoteFile(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return l.Note(Entry{Kind: File, Name: path})
}

// SetSysctl sets a sysctl and notes its old value. It does nothing if the sysctl has the value already.
// The name has dots or, where a part of it holds dots, slashes: net/ipv4/conf/eth0.1/rp_filter.
func (l *Ledger) SetSysctl(name, value string) error {
	file := SysctlFile(name)
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading sysctl %s: %w", name, err)
	}
	old := strings.Join(strings.Fields(string(data)), " ")
	if old == value {
		return nil
	}
	if err := l.Note(Entry{Kind: Sysctl, Name: name, Old: old, New: value}); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting sysctl %s to %s: %w", name, value, err)
	}
	return nil
}

// SysctlFile is the file below /proc/sys that holds the named sysctl.
func SysctlFile(name string) string {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	return filepath.Join("/proc/sys", name)
}

// AppArmorDir is where the kernel shows and takes AppArmor's profiles.
const AppArmorDir = "/sys/kernel/security/apparmor"

// ProfileLoaded reports whether the kernel has a profile. dir is AppArmorDir, except in tests.
func ProfileLoaded(dir, name string) bool {
	list, _ := os.ReadFile(filepath.Join(dir, "profiles")) // a line for each: NAME (MODE)
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, name+" (") {
			return true
		}
	}
	return false
}

// LinkAlias is the alias of links that coracle makes. It identifies them even if the ledger is lost.
const LinkAlias = "coracle"

// RuleComment is the comment of rules that coracle adds to nft chains of other programs.
const RuleComment = "coracle"

// volatile reports whether things of this kind live in the kernel, so that they end with the boot.
func (k Kind) volatile() bool {
	return slices.Contains([]Kind{Link, NFTTable, NFTRule, Mount, Cgroup, Sysctl, Propagation, AppArmor}, k)
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

// exists reports whether something with that name exists and does not have coracle's mark. It is false for the kinds that
// MkdirAll, Claim, NoteFile and SetSysctl note, which check that themselves.
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
	case AppArmor:
		return ProfileLoaded(AppArmorDir, e.Name)
	case NFTTable:
		return l.TableExists != nil && l.TableExists(e.Name)
	}
	return false
}
