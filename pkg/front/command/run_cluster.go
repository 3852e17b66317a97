package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// trial is one run of a command with its cluster.
type trial struct {
	runOptions
	session *localcluster.Session
	who     caller
	signals *interrupts
	began   time.Time
	ran     bool // the command was started
}

// run makes the cluster ready for the command and runs it. It returns the command's exit code.
func (t *trial) run() (int, error) {
	dir, err := t.session.CommandDir(t.who.owner())
	if err != nil {
		return 0, err
	}
	if err := extendPath(dir.Bin()); err != nil {
		return 0, err
	}
	if err := t.deploy(); err != nil {
		return 0, err
	}
	j, err := newJob(t.command, t.who.environ(dir), t.who.credential)
	if err != nil {
		return 0, err
	}
	t.say(fmt.Sprintf("ready after %.1f s, running %s", time.Since(t.began).Seconds(), brief(strings.Join(t.command, " "))))
	var s stopper
	if t.signals.ctx.Err() != nil {
		return 0, context.Cause(t.signals.ctx)
	}
	code, err := j.run(func(group int) {
		t.ran = true
		s.group = group
		if missed := t.signals.give(s.take); missed != nil {
			s.take(missed)
		}
		if err := t.session.Guard(group); err != nil {
			exitcode.Print(os.Stderr, err)
		}
	})
	t.signals.give(nil)
	s.done()
	_ = t.session.Guard(0) // Close reports the same error
	return code, err
}

// deploy applies the manifests, within the time that the cluster may take to be ready.
func (t *trial) deploy() error {
	if len(t.manifests) == 0 {
		return nil
	}
	late := exitcode.With(exitcode.TimedOut, fmt.Errorf("the cluster could not be used within %s", t.plan.Wait))
	ctx, cancel := context.WithDeadlineCause(t.signals.ctx, t.began.Add(t.plan.Wait), late)
	defer cancel()
	for _, path := range t.manifests {
		if err := t.session.Apply(ctx, path); err != nil {
			return err
		}
	}
	t.say("applied " + strings.Join(t.manifests, ", "))
	if !t.rollout {
		return nil
	}
	return t.session.RollOut(ctx)
}

// collectPatience bounds the collection of artifacts.
const collectPatience = time.Minute

// collect writes logs, events and states to the directory for artifacts, or prints some of them if something failed.
func (t *trial) collect(failed bool) {
	if t.signals.ctx.Err() != nil && !t.ran {
		return
	}
	// A signal from now on ends the wait for the cluster.
	ctx, cancel := context.WithTimeout(t.signals.ctx, collectPatience)
	defer cancel()
	switch {
	case t.artifacts != "":
		if err := t.session.Collect(ctx, t.who.artifacts(t.artifacts)); err != nil {
			exitcode.Print(os.Stderr, err)
		}
		t.say("artifacts are in " + t.artifacts)
	case failed && !t.quiet:
		if text := t.session.Digest(ctx); text != "" {
			exitcode.Print(os.Stderr, fmt.Errorf("%s--artifacts DIR keeps the rest", text))
		}
	}
}
