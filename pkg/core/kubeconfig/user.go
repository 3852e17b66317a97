package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// UserFile returns the file that kubectl writes to: the first file of $KUBECONFIG that exists, or else the last
// one; without $KUBECONFIG .kube/config in the home directory.
func UserFile() (string, error) {
	var last string
	for _, path := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		last = path
	}
	if last != "" {
		return last, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the home directory: %w", err)
	}
	return filepath.Join(home, ".kube", "config"), nil
}

// Update changes the kubeconfig at path, which need not exist, under the lock that kubectl uses. The file is
// replaced atomically. It then has mode 0600 and the former owner, or that of its directory. Symbolic links are followed.
func Update(path string, change func(*File) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	unlock, err := lock(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := Parse(data)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := change(f); err != nil {
		return err
	}
	if data, err = f.Encode(); err != nil {
		return err
	}
	return atomicfile.WriteWith(path, 0o600, func(f *os.File) error {
		owner := path
		if _, err := os.Stat(path); err != nil {
			owner = filepath.Dir(path)
		}
		_, err := f.Write(data)
		return errors.Join(err, giveTo(f.Name(), owner))
	})
}

// lock creates the file with which kubectl locks a kubeconfig.
func lock(path string) (unlock func() error, err error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("another program is changing %s; if there is none, remove %s", path, name)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return os.Remove(name) }, f.Close()
}

// makeDir makes a directory and its parents, each with the owner of its parent.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return giveTo(dir, filepath.Dir(dir))
}

// giveTo gives a file the owner of another one, because root may write the file of the user who called sudo.
func giveTo(path, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return os.Chown(path, int(stat.Uid), int(stat.Gid))
	}
	return nil
}
