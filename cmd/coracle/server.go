package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/atomicfile"
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/logs"
	"github.com/coracle-dev/coracle/pkg/state"
	"github.com/coracle-dev/coracle/pkg/supervise"
	"github.com/coracle-dev/coracle/pkg/version"
)

func server(args []string) error { return front(config.Server, args, state.ControlPlane, state.Node) }

func agent(args []string) error { return front(config.Agent, args, state.Node) }

// front runs the halves until a signal asks it to stop.
func front(role config.Role, args []string, halves ...string) error {
	cfg, err := config.Resolve(role, args, os.Environ())
	if err != nil {
		return err
	}
	logs.Setup(cfg.Log)
	syscall.Umask(0o022)
	if err := os.MkdirAll(cfg.Dirs.Data, 0o755); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := supervise.Lock(cfg.Dirs.Lock())
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.MkdirAll(cfg.Dirs.Run, 0o700); err != nil {
		return err
	}
	recorder := state.NewRecorder(cfg.Dirs, state.Front, version.Version)
	if err := unpack(cfg.Dirs); err != nil {
		return err
	}
	data, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.WriteVolatile(cfg.Dirs.Resolved(), data, 0o600); err != nil {
		return err
	}
	s := &supervise.Supervisor{
		Socket: cfg.Dirs.NotifySocket(),
		Line: func(program, line string) {
			if program == "" {
				logrus.Warn(line)
				return
			}
			os.Stderr.WriteString(line + "\n")
		},
		OnChange: func(all []state.Child) { recorder.Update(func(p *state.Process) { p.Children = all }) },
		Reason:   func() supervise.Reason { return new(logs.LastError) },
	}
	for _, half := range halves {
		s.Programs = append(s.Programs, supervise.Program{
			Name: half,
			Path: cfg.Dirs.Tool("coracle-core"),
			Args: []string{half, cfg.Dirs.Resolved()},
			Env:  environment(cfg.Dirs),
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		logrus.Infof("stopping on %s", <-signals)
		stop()
		<-signals
		s.Hurry()
	}()
	if err := s.Run(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}
