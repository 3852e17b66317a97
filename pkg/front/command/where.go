package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

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
func (w where) config() (cfg config.Config, ok bool, err error) {
	dirs, data := w.dirs(), cmp.Or(w.data, os.Getenv("CORACLE_DATA_DIR"))
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
