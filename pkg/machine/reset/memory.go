package reset

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/machine/ephemeral"
)

// ephemeral reports whether a mount in the ledger belongs to an ephemeral server. It is removed with its directory; another
// mount below it at the same mount point is not coracle's.
func (m *machine) ephemeral(point string) bool {
	return point == m.dirs.Data || point == m.dirs.Kubelet
}

// inMemory reports whether a directory is the tmpfs that an ephemeral server mounted there.
func (m *machine) inMemory(dir string) bool {
	table, err := m.mountTable()
	if err != nil {
		return false
	}
	switch dir {
	case m.dirs.Data:
		source := ""
		for _, mount := range table {
			if mount.Mountpoint == resolved(dir) {
				source = mount.Source // the last mount at a mount point covers the others
			}
		}
		return source == ephemeral.Source
	case m.dirs.Kubelet:
		inside, errInside := os.Stat(m.dirs.EphemeralKubelet())
		here, errHere := os.Stat(dir)
		return errInside == nil && errHere == nil && os.SameFile(inside, here)
	}
	return false
}

// memoryItem unmounts a tmpfs and removes the directory below it if coracle made that. The ledger may be in the tmpfs.
func (m *machine) memoryItem(dir string) Item {
	return Item{Kind: "directory", Name: dir, Detail: "in memory", remove: func(context.Context) error {
		if m.failed && dir == m.dirs.Data {
			return fmt.Errorf("kept until all that %s lists is removed: run reset again", m.dirs.Ledger())
		}
		if err := unmount(resolved(dir)); err != nil {
			return err
		}
		for _, e := range m.entries(ledger.Propagation) { // of what was covered
			if e.Name == resolved(dir) && m.isMountPoint(dir) {
				return restorePropagation(e)
			}
		}
		if !m.made(ledger.Dir, dir) {
			return nil
		}
		return removed(unix.Rmdir(dir))
	}}
}
