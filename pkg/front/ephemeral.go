package front

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/machine/ephemeral"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// ephemeral mounts a file system in memory as the data directory of an ephemeral cluster. Before that, and before any other
// start, it removes what is left of an ephemeral cluster that was killed.
func (f *front) ephemeral() error {
	dirs := f.cfg.Dirs
	if ephemeral.Left(dirs) {
		lock, err := supervise.Lock(dirs.Lock())
		if err != nil {
			return nil // it runs: lock reports it
		}
		lock.Close()
		fmt.Fprintln(os.Stderr, "coracle: removing an ephemeral cluster that was killed")
		if err := f.remove(); err != nil {
			return err
		}
	}
	if !f.cfg.Ephemeral.On {
		return nil
	}
	if err := ephemeral.Refuse(dirs); err != nil {
		return err
	}
	if _, err := os.Stat(dirs.Lock()); err == nil { // a persistent cluster that has just been started
		lock, err := supervise.Lock(dirs.Lock())
		var held *supervise.HeldError
		if errors.As(err, &held) {
			return inUse(err)
		}
		if err == nil {
			lock.Close()
		}
	}
	return ephemeral.Begin(dirs)
}

// discard removes an ephemeral cluster after it has stopped.
func (f *front) discard() error {
	if !f.cfg.Ephemeral.On {
		return nil
	}
	if err := f.remove(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "coracle: the ephemeral cluster is removed")
	return nil
}

// remove runs coracle reset for the directories of this cluster.
func (f *front) remove() error {
	core, err := coreFor(f.cfg.Dirs)
	if err != nil {
		return fmt.Errorf("removing the ephemeral cluster: %w", err)
	}
	cmd := exec.Command(core, "reset", "--yes", "--data-dir", f.cfg.Dirs.Data, "--run-dir", f.cfg.Dirs.Run)
	for _, e := range os.Environ() { // reset finds no cache of unpacked programs without HOME: the next cluster needs it
		if name, _, _ := strings.Cut(e, "="); name != "HOME" && name != "XDG_CACHE_HOME" && !strings.HasPrefix(name, "NOTIFY_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	var children *supervise.Children
	if f.super != nil {
		children = f.super.Children
	}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := children.Run(cmd); err != nil {
		logrus.Debug(output.String())
		return fmt.Errorf("removing the ephemeral cluster: %w: %s", err, strings.TrimSpace(output.String()))
	}
	return nil
}

// coreFor returns the path of coracle-core: the one that the cluster was run with, else the one in the user's cache.
func coreFor(dirs paths.Dirs) (string, error) {
	core, err := filepath.EvalSymlinks(dirs.Tool("coracle-core"))
	if errors.Is(err, os.ErrNotExist) {
		var dir string
		dir, err = payload.Locate(context.Background(), dirs, nil)
		core = filepath.Join(dir, "coracle-core")
	}
	return core, err
}
