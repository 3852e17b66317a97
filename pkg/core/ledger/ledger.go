// Package ledger records what coracle made outside its own directories: links, nft tables, mounts, cgroups, files,
// sysctls. An entry is written before the thing is made, so that `coracle reset` finds it after a crash at any point.
// Package footprint lists what may be recorded, package reset knows how each kind is removed.
//
// Only things that did not exist before are recorded, so that everything in the ledger may be removed.
package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Kind is the kind of thing that an entry names.
type Kind string

// The kinds, with what Entry.Name holds for each.
const (
	Dir         Kind = "dir"         // path of a directory; removed only when empty
	Contents    Kind = "contents"    // path of a directory that existed and was empty: its content is removed, it stays
	Used        Kind = "used"        // path of a directory that other programs use too, and in which a node of coracle has run: the kubelet's
	File        Kind = "file"        // path of a file or symlink
	Link        Kind = "link"        // name of a network interface: cni0
	NFTTable    Kind = "nft-table"   // family and name: "ip kube-proxy"
	NFTRule     Kind = "nft-rule"    // family, table and chain of another program that has rules with the comment RuleComment: "ip filter FORWARD"
	Mount       Kind = "mount"       // mount point
	Cgroup      Kind = "cgroup"      // path below the root of every hierarchy: "/kubepods"; with all below it
	Sysctl      Kind = "sysctl"      // name with dots or slashes below /proc/sys; Old and New are its values
	Propagation Kind = "propagation" // mount point whose propagation was changed; Old and New: private, shared
	AppArmor    Kind = "apparmor"    // name of a profile in the kernel
	PodNetwork  Kind = "pod-network" // CIDR; routes to destinations inside it are coracle's
)

// Entry names one thing that coracle made or changed.
type Entry struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Old and New are the values of something that was changed rather than made.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Boot is the id of the boot of the machine in which the thing was made. Note sets it for kinds that live in the kernel.
	// In a later boot a thing of the same name is not coracle's until it is noted again.
	Boot string `json:"boot,omitempty"`
}

// Current reports whether the thing may still exist: kernel objects end with the boot.
func (e Entry) Current() bool { return e.Boot == "" || e.Boot == bootID() }

// bootID is the id of this boot. An unknown one must not be empty, which would mean any boot.
func bootID() string { return cmp.Or(state.BootID(), "unknown") }

// Ledger is the ledger of one data directory. Several goroutines and processes can use it at the same time.
type Ledger struct {
	// TableExists reports whether an nft table exists; nil means that none does. It keeps this package free of netlink.
	TableExists func(name string) bool

	path string
	mu   sync.Mutex
	// known are entries that this process has read or written: noting one of them again does not touch the disk.
	known []Entry
}

// Open returns the ledger of a data directory. The file is made by the first Note.
func Open(dirs paths.Dirs) *Ledger { return &Ledger{path: dirs.Ledger()} }

// Note records things that are about to be made. The entries are on disk when it returns. An entry with the same kind and
// name is replaced if Old or New differ. A link, nft table, cgroup or AppArmor profile that exists although no entry of this boot names it
// belongs to another program and is not recorded.
func (l *Ledger) Note(entries ...Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries = slices.Clone(entries)
	for i := range entries {
		if entries[i].Kind.volatile() {
			entries[i].Boot = bootID()
		}
	}
	if !slices.ContainsFunc(entries, func(e Entry) bool { return !slices.Contains(l.known, e) }) {
		return nil
	}
	return l.change(func(have []Entry) []Entry {
		for _, e := range entries {
			i := slices.IndexFunc(have, func(h Entry) bool { return h.Kind == e.Kind && h.Name == e.Name })
			known := i >= 0 && have[i].Boot == e.Boot
			switch {
			case !known && l.exists(e):
				if i >= 0 {
					have = slices.Delete(have, i, i+1)
				}
			case i < 0:
				have = append(have, e)
			default:
				have[i] = e
			}
		}
		return have
	})
}

// Entries returns everything in the ledger in the order in which it was noted; nothing if there is no ledger.
func (l *Ledger) Entries() ([]Entry, error) {
	data, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	var entries []Entry
	err = atomicfile.CheckJSON(data)
	if err == nil {
		err = json.Unmarshal(data, &entries)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ledger %s: %w", l.path, err)
	}
	return entries, nil
}

// ForgetKernel removes the entries of things that live in the kernel, after all of them are gone.
func (l *Ledger) ForgetKernel() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := os.Stat(l.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return l.change(func(have []Entry) []Entry {
		return slices.DeleteFunc(have, func(e Entry) bool { return e.Kind.volatile() })
	})
}

// change rewrites the file if edit changes the entries. A lock keeps other processes out.
func (l *Ledger) change(edit func([]Entry) []Entry) error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("making directory for the ledger: %w", err)
	}
	lock, err := os.OpenFile(l.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("locking the ledger: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the ledger: %w", err)
	}
	have, err := l.Entries()
	if err != nil {
		return err
	}
	want := edit(slices.Clone(have))
	if !slices.Equal(have, want) {
		if err := l.write(want); err != nil {
			return err
		}
	}
	l.known = want
	return nil
}

// write writes each entry on a line of its own, because users read the file too.
func (l *Ledger) write(entries []Entry) error {
	data := []byte("[")
	for i, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encoding the ledger: %w", err)
		}
		if i > 0 {
			data = append(data, ',')
		}
		data = append(append(data, "\n  "...), line...)
	}
	data = append(data, "\n]\n"...)
	if err := atomicfile.Write(l.path, atomicfile.SumJSON(data), 0o600); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	return nil
}
