// Package ephemeral keeps the data of an ephemeral server in memory: it mounts a tmpfs on the data directory, and a directory
// of it on the kubelet's directory. `coracle reset` removes these mounts with everything else.
package ephemeral

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Left reports whether an ephemeral server still runs, or has been killed so that what it made was not removed.
func Left(dirs paths.Dirs) bool {
	return paths.Exists(dirs.Ephemeral())
}

// Refuse fails if the data directory has the data of a cluster or a node, which the tmpfs would hide.
func Refuse(dirs paths.Dirs) error {
	for _, file := range []string{filepath.Join(dirs.Etcd(), "member"), dirs.ServerCluster(), dirs.Cluster(), dirs.PKI()} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--ephemeral makes a new cluster in memory, and %s has one already: start without --ephemeral to continue it, "+
				"choose another --data-dir and --run-dir, or remove it with coracle reset", dirs.Data)
		}
	}
	return nil
}

// Begin mounts a tmpfs on the data directory, unless it is on one already, and notes everything in the ledger there. The caller
// has called Refuse. The tmpfs can use half of the machine's memory. Image archives and manifests of the user in the data
// directory remain visible.
func Begin(dirs paths.Dirs) error {
	missing := missing(dirs.Data)
	if err := os.MkdirAll(dirs.Data, 0o755); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	var entries []ledger.Entry
	for _, dir := range missing {
		entries = append(entries, ledger.Entry{Kind: ledger.Dir, Name: dir})
	}
	inMemory, err := onTmpfs(dirs.Data)
	if err != nil {
		return err
	}
	if !inMemory {
		if err := cover(dirs); err != nil {
			return fmt.Errorf("mounting memory on the data directory %s: %w", dirs.Data, err)
		}
		entries = append(entries, ledger.Entry{Kind: ledger.Mount, Name: dirs.Data})
	}
	if err := os.WriteFile(dirs.Ephemeral(), nil, 0o600); err != nil {
		return fmt.Errorf("marking the data directory as ephemeral: %w", err)
	}
	l := ledger.Open(dirs)
	if err := l.Note(entries...); err != nil {
		return err
	}
	return bindKubelet(l, dirs)
}

// Source is the source of the data directory's tmpfs in the mount table.
const Source = "coracle-ephemeral"

// cover mounts a tmpfs on the data directory, and binds the user's image archives and manifests into it.
func cover(dirs paths.Dirs) error {
	given := map[string]*os.File{}
	for _, dir := range []string{dirs.Images(), dirs.Manifests()} {
		if f, err := os.Open(dir); err == nil {
			defer f.Close()
			given[dir] = f
		}
	}
	if err := unix.Mount(Source, dirs.Data, "tmpfs", 0, "mode=0755,size=50%"); err != nil {
		return err
	}
	for dir, f := range given {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keeping %s: %w", dir, err)
		}
	}
	return nil
}

// bindKubelet mounts a directory of the same tmpfs on the kubelet's directory.
func bindKubelet(l *ledger.Ledger, dirs paths.Dirs) error {
	if inMemory, err := onTmpfs(dirs.Kubelet); err == nil && inMemory {
		return nil
	}
	if err := l.Claim(dirs.Kubelet, 0o755); err != nil {
		return err
	}
	if err := l.Note(ledger.Entry{Kind: ledger.Mount, Name: dirs.Kubelet}); err != nil {
		return err
	}
	if err := os.MkdirAll(dirs.EphemeralKubelet(), 0o755); err != nil {
		return fmt.Errorf("making the kubelet's directory: %w", err)
	}
	if err := unix.Mount(dirs.EphemeralKubelet(), dirs.Kubelet, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting memory on the kubelet's directory %s: %w", dirs.Kubelet, err)
	}
	return nil
}

// missing lists a directory and its parents that do not exist, parents first.
func missing(dir string) (out []string) {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		out = append([]string{dir}, out...)
	}
	return out
}

func onTmpfs(dir string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false, fmt.Errorf("looking at %s: %w", dir, err)
	}
	return fs.Type == unix.TMPFS_MAGIC, nil
}
