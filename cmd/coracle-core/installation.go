package main

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// installation is the coracle of this machine that a command is about.
type installation struct {
	dirs paths.Dirs
	// config is the configuration of its last start, or of the next one; empty if neither is known.
	config config.Config
}

// find returns the installation that the environment names.
func find() installation { return findIn(paths.Dirs{}) }

// findIn returns an installation by the directories that flags name, then the environment, then by what the last
// start on this machine was given, then by the configuration file, then by default.
func findIn(flags paths.Dirs) installation {
	next := config.Next(os.Environ())
	run := cmp.Or(flags.Run, next.Dirs.Run)
	data := cmp.Or(flags.Data, os.Getenv("CORACLE_DATA_DIR"))
	cfg, _ := config.Load(paths.Dirs{Run: run}.Resolved()) // empty if there was no start since boot, or the user may not read it
	if other := cfg.Dirs; data != "" && other.Data != "" && other.Data != data {
		// Another installation uses the run directory, so this one does not run.
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

// kubeconfig is the path of the administrator's kubeconfig.
func (i installation) kubeconfig() string {
	if path := i.config.API.KubeconfigPath; path != "" {
		return path
	}
	return filepath.Join(i.dirs.Config, "kubeconfig.yaml")
}

// dirFlags adds the flags that name an installation. The returned function finds it after parsing.
func dirFlags(c *cobra.Command) func() installation {
	var dirs paths.Dirs
	command.DirFlags(c, &dirs.Data, &dirs.Run)
	return func() installation { return findIn(dirs) }
}
