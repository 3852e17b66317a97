package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/paths"
)

// installation is the coracle of this machine that a command is about.
type installation struct {
	dirs paths.Dirs
	// config is what it was started with; empty unless it ran since boot and the caller may read that.
	config config.Config
	// unreadable is why config is empty although there is one: most often that the caller is not root.
	unreadable error
}

// find returns the installation that the environment names.
func find() installation { return findIn(paths.Dirs{}) }

// findIn returns an installation by the directories that flags name, then the environment, then by what the last
// start on this machine was given, then by default.
func findIn(flags paths.Dirs) installation {
	known := paths.Dirs{
		Data:    cmp.Or(flags.Data, os.Getenv("CORACLE_DATA_DIR")),
		Run:     cmp.Or(flags.Run, os.Getenv("CORACLE_RUN_DIR")),
		Kubelet: cmp.Or(flags.Kubelet, os.Getenv("CORACLE_KUBELET_ROOT_DIR")),
	}
	if file := os.Getenv("CORACLE_CONFIG"); file != "" {
		known.Config = filepath.Dir(file)
	}
	here := installation{dirs: paths.Dirs{Run: cmp.Or(known.Run, paths.Default().Run)}}
	here.unreadable = here.readConfig()
	last := here.config.Dirs
	if known.Data != "" && last.Data != "" && known.Data != last.Data {
		here.config, last = config.Config{}, paths.Dirs{} // another installation's
	}
	def := paths.Default()
	here.dirs = paths.Dirs{
		Data:    cmp.Or(known.Data, last.Data, def.Data),
		Run:     here.dirs.Run,
		Config:  cmp.Or(known.Config, last.Config, def.Config),
		Kubelet: cmp.Or(known.Kubelet, last.Kubelet, def.Kubelet),
	}
	return here
}

// readConfig reads what the last start since boot was given.
func (i *installation) readConfig() error {
	data, err := os.ReadFile(i.dirs.Resolved())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &i.config); err != nil {
		return fmt.Errorf("reading %s: %w", i.dirs.Resolved(), err)
	}
	return nil
}

// dirFlags adds the flags that say which installation is meant; the returned function finds it after parsing.
func dirFlags(flags *pflag.FlagSet) func() installation {
	var dirs paths.Dirs
	flags.StringVarP(&dirs.Data, "data-dir", "d", "", "Data directory of the coracle that is meant (default /var/lib/coracle)")
	flags.StringVar(&dirs.Run, "run-dir", "", "Its run directory (default /run/coracle)")
	return func() installation { return findIn(dirs) }
}
