package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/coracle-dev/coracle/pkg/paths"
)

// unpack makes sure that dirs.Bin() holds the parts.
func unpack(dirs paths.Dirs) error {
	if _, err := os.Stat(dirs.Tool("coracle-core")); err == nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Dir(self)
	if _, err := os.Stat(filepath.Join(dir, "coracle-core")); err != nil {
		core, err := exec.LookPath("coracle-core")
		if err != nil {
			return errors.New("this build of coracle has no payload, and coracle-core is neither beside it nor in PATH")
		}
		dir = filepath.Dir(core)
	}
	_ = os.Remove(dirs.Bin())
	return os.Symlink(dir, dirs.Bin())
}

// execCore becomes coracle-core, which does the command that args begin with.
func execCore(args []string) error {
	dirs := where{data: os.Getenv("CORACLE_DATA_DIR"), run: os.Getenv("CORACLE_RUN_DIR")}.dirs()
	if err := unpack(dirs); err != nil {
		return err
	}
	path := dirs.Tool("coracle-core")
	if err := syscall.Exec(path, append([]string{"coracle"}, args...), os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", path, err)
	}
	return nil
}
