// Package ledger is the list of what coracle made outside its own directories: links, nft tables, mounts, cgroups,
// files, sysctls. An entry is noted before the thing is made, so that `coracle reset` finds it after a crash at any
// point. What the thing is and how it is removed is package reset's business.
//
// Only what did not exist before is noted: what is in the ledger is ours to remove.
package ledger

import (
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
)

// Kind is what sort of thing an entry names.
type Kind string

// The kinds, with what Entry.Name holds for each.
const (
	Dir         Kind = "dir"         // path of a directory; removed only when empty
	Contents    Kind = "contents"    // path of a directory that was there and empty: what is in it is ours, it is not
	File        Kind = "file"        // path of a file or symlink
	Link        Kind = "link"        // name of a network interface: cni0
	NFTTable    Kind = "nft-table"   // family and name: "ip kube-proxy"
	NFTRule     Kind = "nft-rule"    // family, table and chain of others that has rules with the comment RuleComment: "ip filter FORWARD"
	Mount       Kind = "mount"       // mount point
	Cgroup      Kind = "cgroup"      // path below the root of every hierarchy: "/kubepods"; with all below it
	Sysctl      Kind = "sysctl"      // name with dots or slashes below /proc/sys; Old and New are its values
	Propagation Kind = "propagation" // mount point whose propagation was changed; Old and New: private, shared
	PodNetwork  Kind = "pod-network" // CIDR; routes to destinations inside it are ours
)

// Entry names one thing that coracle made or changed.
type Entry struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Old and New are the values of something that was changed rather than made.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Boot is the boot of the machine that the thing does not outlive; Note sets it for kinds that live in the
	// kernel. A thing of the same name in a later boot is somebody else's until it is noted again.
	Boot string `json:"boot,omitempty"`
}

// Current reports whether the thing that the entry names may still be there.
func (e Entry) Current() bool { return e.Boot == "" || e.Boot == bootID() }

// Ledger is the list of one data directory. It may be used by several goroutines and processes at a time.
type Ledger struct {
	// TableExists tells whether an nft table is there; nil takes it that none is. It keeps this package free of
	// netlink, which the front does without.
	TableExists func(name string) bool

	path string
	mu   sync.Mutex
	// known are entries that this process has seen in the file; a repeated Note of one touches no disk.
	known []Entry
}

// Open returns the ledger of a data directory. The file is made by the first Note.
func Open(dirs paths.Dirs) *Ledger { return &Ledger{path: dirs.Ledger()} }

// Note enters things that are about to be made. The entries are on disk when it returns. An entry that is there
// already is left alone; one with the same kind and name and another Old or New is replaced. A link, nft table or
// cgroup that exists although no entry of this boot says so is somebody else's and not entered.
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
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("reading the ledger %s: %w", l.path, err)
	}
	return entries, nil
}

// ForgetKernel takes out what lives in the kernel, which is all gone.
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

// change rewrites the file if edit changes anything, while other processes are kept out.
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

// write puts one entry on a line: the file is meant to be read by people too.
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
	if err := atomicfile.Write(l.path, data, 0o600); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	return nil
}
