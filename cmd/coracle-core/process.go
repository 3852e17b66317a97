package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/controlplane"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/confine"
	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/node"
)

func controlPlane(args []string) int {
	return childProcess(state.ControlPlane, args, kube.GCControlPlane, controlplane.Add)
}

func nodeProcess(args []string) int { return childProcess(state.Node, args, kube.GCDefault, node.Add) }

// childProcess runs a child process of the front until SIGTERM, and returns its exit code. Its only argument is the path of
// the resolved configuration. gc is for kube.SetupProcess.
func childProcess(name string, args []string, gc int, add func(*lifecycle.Group, config.Config, *state.Recorder) error) int {
	if err := runChild(name, args, gc, add); err != nil {
		logrus.Error(err)
		return exitcode.Code(err)
	}
	return 0
}

func runChild(name string, args []string, gc int, add func(*lifecycle.Group, config.Config, *state.Recorder) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(args) != 1 {
		return fmt.Errorf("usage: coracle-core %s FILE, where FILE is the front's resolved configuration", name)
	}
	cfg, err := config.Load(args[0])
	if err != nil {
		return err
	}
	logs.Setup(cfg.Log)
	notify := kube.SetupProcess(gc)
	if name == state.ControlPlane {
		if cfg, err = asUser(cfg); err != nil {
			return err
		}
	}
	recorder := state.NewRecorder(cfg.Dirs, name, version.Version)
	group := &lifecycle.Group{OnChange: recorder.Units, OnSettings: recorder.Settings}
	if err := add(group, cfg, recorder); err != nil {
		return err
	}
	ready := group.Ready()
	go func() {
		<-ready
		notify.Ready()
		if name == state.ControlPlane { // not in the node: containers would inherit it
			if err := kube.CoalesceTimers(); err != nil {
				logrus.WithError(err).Warn("an idle control plane will use more of the processor than it needs")
			}
		}
		signsOfLife(ctx, group, notify)
	}()
	return group.Run(ctx)
}

// The front restarts this process after a minute without a sign of life, the node after 40 s: two or three probes without an answer.
const (
	probeEvery   = 10 * time.Second
	probeTimeout = 20 * time.Second
)

// signsOfLife sends one each time that all parts have answered, until ctx is done.
func signsOfLife(ctx context.Context, group *lifecycle.Group, notify kube.Notifier) {
	for pause := probeEvery; ; {
		try, cancel := context.WithTimeout(ctx, probeTimeout)
		err := group.Probe(try)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			logrus.Warnf("%v within %s; if that goes on, this process is restarted", err, probeTimeout)
			pause = time.Second
		default:
			notify.Alive()
			pause = probeEvery
		}
		if lifecycle.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// asUser makes this process run as the user of the control plane, and returns the configuration with the files that the user may read.
func asUser(cfg config.Config) (config.Config, error) {
	cfg = controlplaneuser.View(cfg)
	if user := cfg.ControlPlane.User; user != 0 {
		if err := confine.Become(user); err != nil {
			return cfg, fmt.Errorf("becoming user %d: %w", user, err)
		}
	}
	return cfg, nil
}
