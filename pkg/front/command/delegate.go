package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
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

// where names the coracle of this machine that a command is about, by its directories: from flags, else the environment, else
// the configuration file, else the defaults.
type where struct{ data, run string }

// DirFlags adds the flags that name a coracle of this machine by its directories.
func DirFlags(c *cobra.Command, data, run *string) {
	c.Flags().StringVarP(data, "data-dir", "d", "", "Data directory of the coracle that is meant (default "+paths.Default().Data+")")
	c.Flags().StringVar(run, "run-dir", "", "Its run directory (default "+paths.Default().Run+")")
	_, _ = c.MarkFlagDirname("data-dir"), c.MarkFlagDirname("run-dir")
}

func whereFlags(c *cobra.Command) *where {
	w := &where{}
	DirFlags(c, &w.data, &w.run)
	return w
}

// config returns the configuration of its last start. ok is false if it was not started since boot.
func (w where) config() (cfg config.Config, ok bool, err error) { return w.configIn(w.dirs()) }

// configIn does the same as config, with directories that dirs returned before.
func (w where) configIn(dirs paths.Dirs) (cfg config.Config, ok bool, err error) {
	data := cmp.Or(w.data, os.Getenv("CORACLE_DATA_DIR"))
	cfg, err = config.Load(dirs.Resolved())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return config.Config{}, false, nil
	case errors.Is(err, fs.ErrPermission):
		return config.Config{}, false, fmt.Errorf("reading %s is for root only: put sudo before the command", dirs.Resolved())
	case err != nil:
		return config.Config{}, false, err
	case data != "" && cfg.Dirs.Data != data:
		return config.Config{}, false, nil // another coracle uses the run directory
	}
	return cfg, true, nil
}

// dirs returns the directories that its next start would use.
func (w where) dirs() paths.Dirs {
	d := config.Next(os.Environ()).Dirs
	d.Data, d.Run = cmp.Or(w.data, d.Data), cmp.Or(w.run, d.Run)
	return d
}
