package front

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"

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
	restarts := map[string]int{}
	for _, c := range f.report.Snapshot().Children {
		restarts[c.Name] = c.Restarts
	}
	well := func() string {
		for _, c := range f.report.Snapshot().Children {
			if c.Restarts != restarts[c.Name] || c.State != supervise.Ready {
				return fmt.Sprintf("%s %s", c.Name, c.LastExit)
			}
		}
		return ""
	}
	s, onTrial, err := upgrade.Confirm(ctx, f.cfg.Dirs.Data, well)
	switch {
	case err != nil:
		logrus.WithError(err).Warn("ending the trial of this version")
	case onTrial:
		logrus.Info("upgrade " + s.Text())
	}
}
