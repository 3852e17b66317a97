package reset

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/machine/ephemeral"
)

// ephemeral reports whether a mount of the ledger's is of an ephemeral server's, which goes with its directory: what is
// mounted below it, on the same mount point, is somebody else's.
func (m *machine) ephemeral(point string) bool {
	return point == m.dirs.Data || point == m.dirs.Kubelet
}

// inMemory reports whether a directory is the memory that an ephemeral server put there.
func (m *machine) inMemory(dir string) bool {
	table, err := m.mountTable()
	if err != nil {
		return false
	}
	switch dir {
	case m.dirs.Data:
		top := mount{}
		for _, row := range table {
			if row.point == dir {
				top = row
			}
		}
		return top.source == ephemeral.Source
	case m.dirs.Kubelet:
		inside, errInside := os.Stat(m.dirs.EphemeralKubelet())
		here, errHere := os.Stat(dir)
		return errInside == nil && errHere == nil && os.SameFile(inside, here)
	}
	return false
}

// memoryItem takes a directory in memory away, and what it covers if coracle made that. The ledger may be in it.
func (m *machine) memoryItem(dir string) Item {
	return Item{Kind: "directory", Name: dir, Detail: "in memory", remove: func(context.Context) error {
		if m.failed && dir == m.dirs.Data {
			return fmt.Errorf("kept until all that %s lists is removed: run reset again", m.dirs.Ledger())
		}
		if err := unmount(dir); err != nil {
			return err
		}
		for _, e := range m.entries(ledger.Propagation) { // of what was covered
			if e.Name == dir && m.isMountPoint(dir) {
				return restorePropagation(e)
			}
		}
		if !m.made(ledger.Dir, dir) {
			return nil
		}
		return removed(unix.Rmdir(dir))
	}}
}
