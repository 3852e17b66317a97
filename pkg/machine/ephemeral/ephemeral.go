// Package ephemeral keeps the data of a server that is to leave nothing behind in memory: a file system of the kernel's
// is mounted over the data directory and, out of the same memory, over the kubelet's. What else such a server makes is
// removed as by `coracle reset`, which takes these mounts away too.
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

// Left reports whether an ephemeral server has run here and what it made was not removed: it was killed, or still runs.
func Left(dirs paths.Dirs) bool {
	return paths.Exists(dirs.Ephemeral())
}

// Refuse is an error if the data directory holds a cluster, or a node of one: memory over it would hide that.
func Refuse(dirs paths.Dirs) error {
	for _, file := range []string{filepath.Join(dirs.Etcd(), "member"), dirs.ServerCluster(), dirs.Cluster(), dirs.PKI()} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--ephemeral begins a new cluster in memory, and %s holds one already: leave --ephemeral out to go on with that, "+
				"choose another --data-dir and --run-dir, or end it with coracle reset", dirs.Data)
		}
	}
	return nil
}

// Begin makes the data directory, which Refuse has looked at, a place in memory, and notes everything in the ledger there.
// A directory that lies in memory already is used as it is. The memory that all of it may take is half of the machine's.
// Image archives and manifests of the user's that lie in the directory are seen in the new one too.
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
		return fmt.Errorf("marking the data directory as one that is not kept: %w", err)
	}
	l := ledger.Open(dirs)
	if err := l.Note(entries...); err != nil {
		return err
	}
	return bindKubelet(l, dirs)
}

// Source is what the mount table calls the memory on the data directory.
const Source = "coracle-ephemeral"

// cover mounts memory over the data directory, and into it what users put there for coracle to take.
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

// bindKubelet puts the kubelet's directory into the same memory.
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

// missing lists a directory and those above it that are not there, the uppermost first.
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
