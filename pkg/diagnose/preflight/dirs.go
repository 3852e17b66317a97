package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

const mib = 1 << 20

// What has to be free in the data directory: room for the store to go on, and at first for the payload too.
const (
	spaceToRun    = 128 * mib
	spaceToUnpack = 512 * mib
	inodesToRun   = 2000
)

func dataDir(cfg config.Config) error {
	dir := cfg.Dirs.Data
	if err := writable("data directory", dir, "--data-dir"); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("looking at the data directory %s: %w", dir, err)
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return noExec(dir)
	}
	return space(dir, fs, payload.Unpacks() && missing(cfg.Dirs.Tool("coracle-core")))
}

func noExec(dir string) error {
	return trouble("mount it with exec, or choose another --data-dir",
		"the data directory %s is mounted noexec, and coracle's programs are unpacked into it", dir)
}

// Space finds out whether there is room below a directory for the data directory of the configuration, which need not
// be there yet.
func Space(cfg config.Config, dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	return space(dir, fs, payload.Unpacks() && missing(cfg.Dirs.Tool("coracle-core")))
}

// Place finds out, changing nothing, whether a directory, or what is to be made below it, can be written and, with exec,
// executed in. The flag is the one that chooses another.
func Place(what, dir, flag string, exec bool) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600) // a file without a name
	if err == nil {
		_ = unix.Close(fd)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) { // file systems without such files
		err = unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("writing to the %s: %w, or choose another with %s", what, reason(dir, err), flag)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("looking at the %s %s: %w", what, dir, err)
	}
	if exec && fs.Flags&unix.ST_NOEXEC != 0 {
		return noExec(dir)
	}
	return nil
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return err != nil
}

// space compares what is free with what is needed.
func space(dir string, fs unix.Statfs_t, first bool) error {
	need := uint64(spaceToRun)
	if first {
		need = spaceToUnpack
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < need {
		return trouble("make room, or choose another --data-dir",
			"the data directory %s has %d MiB of space left and needs %d MiB", dir, free/mib, need/mib)
	}
	if fs.Files > 0 && fs.Ffree < inodesToRun {
		return trouble("remove files, or choose another --data-dir",
			"the file system of the data directory %s has %d inodes free and needs %d", dir, fs.Ffree, inodesToRun)
	}
	return nil
}

func runDir(cfg config.Config) error { return writable("run directory", cfg.Dirs.Run, "--run-dir") }

// writable makes the directory if it is missing, and a file in it.
func writable(what, dir, flag string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the %s: %w, or choose another with %s", what, reason(dir, err), flag)
	}
	f, err := os.CreateTemp(dir, ".preflight-*")
	if err != nil {
		return fmt.Errorf("writing to the %s: %w, or choose another with %s", what, reason(dir, err), flag)
	}
	f.Close()
	return os.Remove(f.Name())
}

// reason says what people know a failure by, naming the directory rather than a temporary file.
func reason(dir string, err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s is on a read-only file system: mount it read-write", dir)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s has no space left: make room", dir)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s, or a part of its path, is a file: remove that", dir)
	}
	return fmt.Errorf("%w: mend that", err)
}

// secrets are the directories that hold keys, and secretNames what they are called.
func secrets(d paths.Dirs) []string {
	return []string{d.PKI(), d.NodePKI(), filepath.Dir(d.ServerConfig("x")), filepath.Dir(d.NodeConfig("x"))}
}

var secretNames = []string{".key", ".kubeconfig", ".conf", ".pem"}

// SecretFiles finds keys that others on this machine could have read. They are not repaired silently: who opened
// them up should think about who has a copy by now.
func SecretFiles(cfg config.Config) error {
	var wrong []error
	for _, dir := range secrets(cfg.Dirs) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || !slices.Contains(secretNames, filepath.Ext(path)) {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if mode := info.Mode().Perm(); mode&0o077 != 0 {
				wrong = append(wrong, trouble("consider who may have a copy, then: chmod 600 "+path,
					"%s holds a secret and others can read it (mode %#o)", path, mode))
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			wrong = append(wrong, fmt.Errorf("looking at the modes of secret files: %w", err))
		}
	}
	return errors.Join(wrong...)
}
