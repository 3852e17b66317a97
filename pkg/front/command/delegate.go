package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/progress"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// delegated is a command that coracle-core runs with all its arguments.
func delegated(name, short string) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, DisableFlagParsing: true}
	if slices.Contains(tools, name) {
		c.Use, c.DisableFlagsInUseLine = name+" [ARGUMENTS...]", true
		c.Long = short + ".\n\nIt is the upstream program with coracle's addresses as its defaults; " + name +
			" --help has its manual. A link named " + name + " to coracle is the same."
	}
	c.RunE = func(_ *cobra.Command, args []string) error { return execCore(append([]string{name}, args...)) }
	return c
}

// execCore becomes coracle-core, which does the command that args begin with.
func execCore(args []string) error {
	var w where
	dirs := w.dirs()
	if cfg, ok, err := w.config(); ok && err == nil {
		dirs = cfg.Dirs // its payload is unpacked already
	}
	var once sync.Once
	dir, err := payload.Locate(context.Background(), dirs, func(int64, int64) {
		once.Do(func() {
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
