package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/resetrequest"
	"github.com/coracle-dev/coracle/pkg/controlplane"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// resetProgram is the child process that resets the quorum while coracle is stopped.
const resetProgram = "reset-storage"

// resetStopped resets the quorum while coracle is stopped: a child process runs only etcd, as the control plane's user, because the data
// belongs to that user.
func resetStopped(ctx context.Context, out io.Writer, cfg config.Config, snapshot string) error {
	if err := controlplane.RequestReset(cfg.Dirs, snapshot); err != nil {
		return err
	}
	fmt.Fprintln(out, "coracle is stopped: copying etcd's data and making it anew")
	if err := resetrequest.CopyData(cfg.Dirs); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.Dirs.Run, 0o755); err != nil {
		return err
	}
	cfg.ControlPlane = controlplaneuser.Choose(cfg)
	copies := controlplaneuser.NewCopies(cfg, controlplaneuser.Front{
		Joined: func() error { return join.MarkJoined(cfg.Dirs.ServerCluster()) },
		Named:  registries.Named,
		Failed: func(err error) { logrus.WithError(err).Warn("copying files for the control plane") },
	})
	if err := copies.Prepare(); err != nil {
		return err
	}
	settings, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the child ends with the thread that starts it
	defer runtime.UnlockOSThread()
	var why bytes.Buffer
	child := exec.CommandContext(ctx, filepath.Join("/proc", "self", "exe"), resetProgram, "/dev/stdin")
	child.Stdin, child.Stderr = bytes.NewReader(settings), &why
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	if err := child.Run(); err != nil {
		if text := strings.TrimSpace(why.String()); text != "" {
			err = errors.New(text)
		}
		return err
	}
	if cfg.ControlPlane.User == 0 {
		return nil
	}
	return copies.Sync() // takes the mark that it is done
}

// resetStorage is the child process, and returns its exit code. Its only argument is the path of the configuration.
func resetStorage(args []string) int {
	logrus.SetOutput(io.Discard)
	if err := runStorage(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runStorage runs etcd until the reset is done.
func runStorage(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(args) != 1 {
		return fmt.Errorf("usage: coracle-core %s FILE", resetProgram)
	}
	cfg, err := config.Load(args[0])
	if err != nil {
		return err
	}
	if cfg, err = asUser(cfg); err != nil {
		return err
	}
	var g lifecycle.Group
	controlplane.AddStorage(&g, cfg)
	ready := g.Ready()
	go func() {
		select {
		case <-ready:
			stop()
		case <-ctx.Done():
		}
	}()
	return g.Run(ctx)
}
