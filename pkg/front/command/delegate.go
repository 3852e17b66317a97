package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/coracle-dev/coracle/pkg/core/progress"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// execCore becomes coracle-core, which does the command that args begin with.
func execCore(args []string) error {
	var w where
	w.data, w.run = os.Getenv("CORACLE_DATA_DIR"), os.Getenv("CORACLE_RUN_DIR")
	dirs := w.dirs()
	if cfg, ok, err := w.config(); ok && err == nil {
		dirs = cfg.Dirs // the running one's parts are unpacked already
	}
	var said sync.Once
	dir, err := payload.Locate(context.Background(), dirs, func(int64, int64) {
		said.Do(func() {
			if progress.IsTerminal(os.Stderr) {
				fmt.Fprintln(os.Stderr, "coracle: unpacking, once for this version")
			}
		})
	})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "coracle-core")
	if err := syscall.Exec(path, append([]string{"coracle"}, args...), os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", path, err)
	}
	return nil
}
