package front

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/cluster/settings"
	"github.com/coracle-dev/coracle/pkg/cluster/token"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/preflight"
)

// certFiles names a certificate and its key.
type certFiles func(paths.Dirs) (certFile, keyFile string)

// join finds out what the cluster's settings are, which may mean to join it first, and settles the configuration.
func (f *front) join(ctx context.Context) error {
	j, err := newJoiner(f.cfg, f.waits(ctx), func(known config.Known) error {
		_, err := f.settle(known)
		return exitcode.With(exitcode.Misuse, err)
	})
	if err != nil {
		return err
	}
	var known *config.Known
	if f.cfg.Role == config.Agent {
		var k config.Known
		k, err = j.agent(ctx)
		known = &k
	} else {
		var made bool
		if made, err = settings.Made(f.cfg); err != nil {
			return err
		}
		known, err = j.server(ctx, made)
	}
	if err != nil {
		return err
	}
	if known != nil {
		if err := f.adopt(*known); err != nil {
			return err
		}
	} else if err := settings.Keep(f.cfg); err != nil {
		return err
	}
	if f.cfg.Role == config.Agent {
		return nil
	}
	return f.keepTokens(j.token)
}

// adopt settles the configuration under what the cluster says.
func (f *front) adopt(known config.Known) error {
	files := known.Settings.Files(f.cfg.Dirs)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if f.cfg.Role != config.Server {
			break
		}
		if _, err := atomicfile.WriteIfChanged(path, []byte(files[path]), 0o600); err != nil {
			return err
		}
	}
	cfg, err := f.settle(known)
	if err != nil {
		return err
	}
	fresh := !f.cfg.Join.Joined
	f.cfg = cfg
	f.super.Programs = f.programs()
	if fresh { // the first look did not know what the cluster wants
		return preflight.Run(f.cfg, func(error) {})
	}
	return nil
}

// keepTokens leaves the tokens that others are to join with where the control plane finds them.
func (f *front) keepTokens(own *token.Token) error {
	if f.cfg.Join.Server != "" && own != nil && !own.Chosen {
		own = nil // it is what this machine joined with. One that all machines have must outlive the server that made it
	}
	if own != nil && own.Pin != "" {
		if pin, err := pki.OwnPin(f.cfg.Dirs); err != nil || pin != own.Pin {
			return exitcode.Usagef("the token is for joining a cluster that exists: say where it is with --server https://HOST:6443")
		}
	}
	agents, err := readToken(f.cfg.Join.AgentToken, f.cfg.Join.AgentTokenFile)
	if err != nil {
		return exitcode.Usagef("the agents' token: %w", err)
	}
	if own != nil && agents != nil && own.ID == agents.ID {
		return exitcode.Usagef("the token and the agents' token are the same, and then agents could join as servers: make them different")
	}
	for file, t := range map[string]*token.Token{f.cfg.Dirs.Token(): own, f.cfg.Dirs.AgentToken(): agents} {
		if t == nil {
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("removing the token of an earlier start: %w", err)
			}
			continue
		}
		if _, err := atomicfile.WriteIfChanged(file, []byte(t.Bearer()+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// remind is how often the log says that joining still waits for the same.
const remind = time.Minute

// waits returns a function that tells why joining goes on waiting: in the log when that is news, and to who looks.
func (f *front) waits(ctx context.Context) func(error) {
	var said string
	var when time.Time
	return func(why error) {
		text := why.Error()
		if text == said && time.Since(when) < remind {
			return
		}
		if said == "" { // coracle wait and status look there for whom to ask
			if err := f.writeResolved(); err != nil {
				logrus.WithError(err).Warn("telling coracle wait that this one is starting")
			}
			go f.unpackAhead(ctx)
		}
		said, when = text, time.Now()
		logrus.Warnf("waiting to join: %s", text)
		f.report.Waiting(text)
		f.systemd.Status("waiting to join: " + text)
	}
}
