package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/paths"
)

// installation is the coracle of this machine that a command is about.
type installation struct {
	dirs paths.Dirs
	// config is what it was started with last, or else what it would be started with now; empty if neither can be told.
	config config.Config
}

// find returns the installation that the environment names.
func find() installation { return findIn(paths.Dirs{}) }

// findIn returns an installation by the directories that flags name, then the environment, then by what the last
// start on this machine was given, then by the configuration file, then by default.
func findIn(flags paths.Dirs) installation {
	next := nextStart()
	run := cmp.Or(flags.Run, next.Dirs.Run)
	data := cmp.Or(flags.Data, os.Getenv("CORACLE_DATA_DIR"))
	cfg := lastStart(run)
	if other := cfg.Dirs; data != "" && other.Data != "" && other.Data != data {
		// The run directory is another installation's, and so is all that it says to be its own: this one does not run.
		nowhere := filepath.Join(data, "nowhere")
		return installation{dirs: paths.Dirs{Data: data, Run: nowhere, Config: nowhere, Kubelet: nowhere}}
	}
	if cfg.Dirs.Data == "" {
		cfg = next
	}
	dirs := cfg.Dirs
	dirs.Run, dirs.Data = run, cmp.Or(data, dirs.Data)
	return installation{dirs: dirs, config: cfg}
}

// lastStart is what the last start since boot was given; empty if there was none or the caller may not know.
func lastStart(run string) (cfg config.Config) {
	data, err := os.ReadFile(paths.Dirs{Run: run}.Resolved())
	if err != nil || json.Unmarshal(data, &cfg) != nil {
		return config.Config{}
	}
	return cfg
}

// nextStart is what a start without flags would be given now. Where that has mistakes, which a start would name, only
// the directories are told, as the environment and defaults have them.
func nextStart() config.Config {
	for _, role := range []config.Role{config.Server, config.Agent} {
		if cfg, err := config.Resolve(role, nil, os.Environ()); err == nil {
			return cfg
		}
	}
	dirs := paths.Default()
	dirs.Data = cmp.Or(os.Getenv("CORACLE_DATA_DIR"), dirs.Data)
	dirs.Run = cmp.Or(os.Getenv("CORACLE_RUN_DIR"), dirs.Run)
	return config.Config{Dirs: dirs}
}

// dirFlags adds the flags that say which installation is meant; the returned function finds it after parsing.
func dirFlags(flags *pflag.FlagSet) func() installation {
	var dirs paths.Dirs
	flags.StringVarP(&dirs.Data, "data-dir", "d", "", "Data directory of the coracle that is meant (default "+paths.Default().Data+")")
	flags.StringVar(&dirs.Run, "run-dir", "", "Its run directory (default "+paths.Default().Run+")")
	return func() installation { return findIn(dirs) }
}
