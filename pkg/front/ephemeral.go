package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// remove removes everything of this cluster.
func (f *front) remove() error {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { // without HOME, reset leaves the cache of unpacked programs
		name, _, _ := strings.Cut(e, "=")
		return name == "HOME" || name == "XDG_CACHE_HOME" || strings.HasPrefix(name, "NOTIFY_")
	})
	var children *supervise.Children
	if f.super != nil {
		children = &f.super.Children
	}
	core, err := coreFor(context.Background(), f.cfg.Dirs)
	if err == nil {
		err = Reset(context.Background(), core, f.cfg.Dirs, env, children)
	}
	if err != nil {
		return fmt.Errorf("removing the ephemeral cluster: %w", err)
	}
	return nil
}

// Reset runs the command reset of coracle-core, with further arguments, for the coracle that uses the given directories. The
// error has the messages of that command. children may be nil.
func Reset(ctx context.Context, core string, dirs paths.Dirs, env []string, children *supervise.Children, args ...string) error {
	cmd := exec.CommandContext(ctx, core, append([]string{"reset", "--yes", "--data-dir", dirs.Data, "--run-dir", dirs.Run}, args...)...)
	cmd.Env = env
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := children.Run(cmd); err != nil {
		logrus.Debug(output.String())
		var lines []string
		for l := range strings.Lines(output.String()) {
			if text, ok := strings.CutPrefix(l, "coracle: "); ok {
				lines = append(lines, strings.TrimSpace(text))
			}
		}
		// Without a message it did not get as far as to report the reason.
		return fmt.Errorf("%w\n%s", err, cmp.Or(strings.Join(lines, "\n"), strings.TrimSpace(output.String())))
	}
	return nil
}

// coreFor returns the path of coracle-core: of the payload that is in use, else of the one in the user's cache.
func coreFor(ctx context.Context, dirs paths.Dirs) (string, error) {
	core, err := filepath.EvalSymlinks(dirs.Tool("coracle-core"))
	if errors.Is(err, os.ErrNotExist) {
		var dir string
		dir, err = payload.Locate(ctx, dirs, nil)
		core = filepath.Join(dir, "coracle-core")
	}
	return core, err
}
