package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// serveGateway runs the gateway's process while the control plane, or the node process of an agent, has left a configuration for it, until the returned function is called. It is
// no child process like the others: it runs on demand, and neither a start nor an upgrade waits for it. Like pods it goes on while coracle is stopped:
// the next start runs another process, which takes over its sockets.
// A machine that was removed from its cluster keeps neither the process nor the private keys in its files.
func (f *front) serveGateway() (stop func(removed bool)) {
	dir := gateway.Dir(f.cfg.Dirs.Gateway())
	remove := func() {
		if err := errors.Join(dir.End(), os.RemoveAll(string(dir))); err != nil {
			logrus.WithError(err).Warn("removing the gateway and its files")
		}
	}
	if f.cfg.Disabled("gateway") {
		remove()
		return func(bool) {}
	}
	wanted := func() bool { return paths.Exists(dir.Files().Config()) }
	if !wanted() { // what serves here is of the past
		if err := dir.End(); err != nil {
			logrus.WithError(err).Warn("ending a gateway that an earlier coracle left")
		}
	}
	program, err := f.gatewayProgram()
	if err == nil {
		err = dir.Prepare(f.cfg.ControlPlane.User)
	}
	var changes <-chan struct{}
	ctx, cancel := context.WithCancel(context.Background())
	if err == nil {
		changes, err = entries(ctx, string(dir.Files()))
	}
	if err != nil {
		cancel()
		logrus.WithError(err).Error("Gateways and Ingresses are not served on this node")
		return func(bool) {}
	}
	s := &supervise.Supervisor{
		Programs: []supervise.Program{program}, Owner: &f.super.Children, Socket: f.cfg.Dirs.GatewaySocket(),
		Line: f.line, OnChange: putSocket(dir), Hurry: f.super.Hurry,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runWhile(ctx, changes, wanted, func(ctx context.Context) error {
			err := s.Run(ctx)
			if ctx.Err() == nil { // the process cannot serve; an earlier one goes on
				return err
			}
			return errors.Join(err, dir.End())
		})
	}()
	return func(removed bool) {
		if !removed && f.podsGoOn() {
			return
		}
		cancel()
		<-ended
		if removed {
			remove()
		}
	}
}

// putSocket puts the process's socket in place when the process is ready. It has read the configuration before, and the control plane may have told its
// predecessor of a later one: it reads again.
func putSocket(dir gateway.Dir) func([]state.Child) {
	return func(all []state.Child) {
		if !allReady(all) {
			return
		}
		put, err := dir.PutSocket()
		if err != nil {
			logrus.WithError(err).Error("the gateway hears nothing of changes")
		}
		if !put {
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
			defer cancel()
			if _, err := dir.Apply(ctx); err != nil {
				logrus.WithError(err).Warn("the gateway may serve an earlier configuration until the next change")
			}
		}()
	}
}

// applyTimeout bounds the reading of a configuration that may have come while the gateway started.
const applyTimeout = time.Minute

func (f *front) gatewayProgram() (supervise.Program, error) {
	settings, err := json.Marshal(f.cfg.Log)
	return supervise.Program{
		Name: gateway.Program, Path: f.cfg.Dirs.Tool("coracle-core"),
		Args:      []string{gateway.Program, f.cfg.Dirs.Gateway(), string(settings)},
		Env:       []string{"GOGC=40", "HOME=/"}, // garbage is collected while packages are initialized, as in the name server: see startGC there
		OwnMounts: true,
	}, err
}

// retryGateway is how long a gateway that has failed several times rests.
const retryGateway = 30 * time.Second

// runWhile runs something while it is wanted, which may be otherwise after each change, until ctx is done.
func runWhile(ctx context.Context, changes <-chan struct{}, wanted func() bool, run func(context.Context) error) {
	var stop context.CancelFunc
	ended := make(chan error, 1)
	for {
		switch want := wanted(); {
		case want && stop == nil:
			var life context.Context
			life, stop = context.WithCancel(ctx)
			go func() { ended <- run(life) }()
		case !want && stop != nil:
			stop()
		}
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
				<-ended
			}
			return
		case err := <-ended:
			stop()
			stop = nil
			if err != nil {
				logrus.WithError(err).Errorf("Gateways and Ingresses are not served on this node; the gateway is started again in %s, or when one of them changes", retryGateway)
				select {
				case <-ctx.Done():
					return
				case <-changes:
				case <-time.After(retryGateway):
				}
			}
		case <-changes:
		}
	}
}

// entries sends after files have come into a directory or have gone from it. It costs nothing while nothing happens.
func entries(ctx context.Context, dir string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	watch := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		watch.Close()
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	context.AfterFunc(ctx, func() { watch.Close() })
	changes := make(chan struct{}, 1)
	go func() {
		events := make([]byte, 4096)
		for {
			if _, err := watch.Read(events); err != nil {
				return // it was closed
			}
			select {
			case changes <- struct{}{}:
			default: // an earlier change is not handled yet
			}
		}
	}()
	return changes, nil
}

func (f *front) endLeftovers() error {
	killed, err := supervise.EndLeftovers(f.cfg.Dirs.Lock(), f.super.Programs)
	if len(killed) > 0 {
		logrus.Warnf("ended processes %v, which an earlier coracle had left", killed)
	}
	return err
}
