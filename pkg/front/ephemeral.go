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

// ephemeral makes the data directory one in memory, if the cluster is not to be kept. What an ephemeral cluster left
// that was killed is removed before, whatever starts now.
func (f *front) ephemeral() error {
	dirs := f.cfg.Dirs
	if ephemeral.Left(dirs) {
		lock, err := supervise.Lock(dirs.Lock())
		if err != nil {
			return nil // it runs: who locks next says so
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
	if _, err := os.Stat(dirs.Lock()); err == nil { // of one that is kept, and has no more than begun
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

// discard removes an ephemeral cluster after its end.
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

// remove takes everything off the machine that coracle made for these directories, as coracle reset does.
func (f *front) remove() error {
	core, err := coreFor(f.cfg.Dirs)
	if err != nil {
		return fmt.Errorf("removing the ephemeral cluster: %w", err)
	}
	cmd := exec.Command(core, "reset", "--yes", "--data-dir", f.cfg.Dirs.Data, "--run-dir", f.cfg.Dirs.Run)
	for _, e := range os.Environ() { // without a home it leaves the user's unpacked programs, which the next cluster needs
		if name, _, _ := strings.Cut(e, "="); name != "HOME" && name != "XDG_CACHE_HOME" && !strings.HasPrefix(name, "NOTIFY_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	var children *supervise.Children
	if f.super != nil {
		children = f.super.Children
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := children.Run(cmd); err != nil {
		logrus.Debug(said.String())
		return fmt.Errorf("removing the ephemeral cluster: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// coreFor finds the program that removes things: the one that has run here, else the user's copy.
func coreFor(dirs paths.Dirs) (string, error) {
	core, err := filepath.EvalSymlinks(dirs.Tool("coracle-core"))
	if errors.Is(err, os.ErrNotExist) {
		var dir string
		dir, err = payload.Locate(context.Background(), dirs, nil)
		core = filepath.Join(dir, "coracle-core")
	}
	return core, err
}
