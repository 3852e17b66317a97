package front

import (
	"context"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/clocksteps"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// confirmUpgrade ends the trial of this version after an upgrade, if there is one, once coracle is ready and stays so.
func (f *front) confirmUpgrade(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-f.became:
	}
	before := f.report.Snapshot().Children
	well := func() string {
		for {
			if wrong, again := fault(before, f.report.Snapshot().Children); !again || !pause(ctx, time.Second/10) {
				return wrong
			}
		}
	}
	s, onTrial, err := upgrade.Confirm(ctx, f.cfg.Dirs.Data, well)
	switch {
	case err != nil:
		logrus.WithError(err).Warn("ending the trial of this version")
	case onTrial:
		logrus.Info("upgrade " + s.Text())
	}
}

// fault returns what is wrong with the child processes since before, "" for nothing, and whether that may pass: it is not the new version's fault that they
// start again because the clock was set.
func fault(before, now []state.Child) (wrong string, passes bool) {
	for i, c := range now {
		restarted := i >= len(before) || c.Restarts != before[i].Restarts
		clock := restarted && strings.Contains(c.LastExit, clocksteps.Reason)
		switch {
		case restarted && !clock, c.State != supervise.Ready && !clock:
			return c.Name + " " + c.LastExit, false
		case c.State != supervise.Ready:
			wrong, passes = c.Name+" is not ready since "+clocksteps.Reason+"...", true
		}
	}
	return wrong, passes
}
