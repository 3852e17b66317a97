package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/state"
	"github.com/coracle-dev/coracle/pkg/supervise"
)

// server runs a control plane and a node.
func server(args []string) error {
	cfg, err := resolve(config.Server, args)
	if err != nil {
		return err
	}
	return runFront(cfg, state.ControlPlane, state.Node)
}

// agent will run a node of somebody else's cluster.
func agent(args []string) error {
	if _, err := resolve(config.Agent, args); err != nil {
		return err
	}
	return errors.New("joining a server is not in this build yet; coracle server runs a cluster of one machine")
}

// resolve reads the configuration. PID 1 may have to mount what is read from first.
func resolve(role config.Role, args []string) (config.Config, error) {
	if os.Getpid() == 1 {
		if err := supervise.Mount(); err != nil {
			return config.Config{}, fmt.Errorf("setting up the machine as its init: %w", err)
		}
	}
	cfg, err := config.Resolve(role, args, os.Environ())
	if errors.Is(err, pflag.ErrHelp) {
		return cfg, helpRole(role)
	}
	if err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}
