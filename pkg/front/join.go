package front

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// join makes this machine a member of its cluster and takes the configuration with the cluster's settings.
func (f *front) join(ctx context.Context) error {
	cfg, err := join.Run(ctx, f.cfg, f.settle, f.waits(ctx))
	if err != nil {
		return err
	}
	unchecked := cfg.Join.Joined && !f.cfg.Join.Joined
	f.cfg = cfg
	f.super.Programs = f.programs()
	if unchecked { // the first checks did not know the cluster's settings
		return check.Start(f.cfg, func(error) {})
	}
	return nil
}

// remind is the interval between two log lines about the same reason to wait.
const remind = time.Minute

// waits returns a function that reports why joining waits: in the log if the reason is new, in the state file, and to systemd.
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
				logrus.WithError(err).Warn("writing the configuration for coracle wait")
			}
			go f.prefetch(ctx)
		}
		said, when = text, time.Now()
		logrus.Warnf("waiting to join: %s", text)
		f.report.Waiting(text)
		f.systemd.Status("waiting to join: " + text)
	}
}

// percent is the progress of something. It is safe for concurrent use.
type percent struct{ value atomic.Int64 }

func (p *percent) set(done, total int64) { p.value.Store(done * 100 / max(total, 1)) }

// String is empty until something is done.
func (p *percent) String() string {
	if n := p.value.Load(); n > 0 {
		return fmt.Sprintf("%d %%", n)
	}
	return ""
}

// unpack unpacks the payload to where the child processes run from, unless it is there.
func (f *front) unpack(ctx context.Context) error {
	var once sync.Once
	unpack, to := payload.Unpack, f.asked.Dirs.Payloads()
	if f.asked.Ephemeral.On {
		unpack, to = payload.Borrow, payload.Cache()
	}
	return unpack(ctx, f.asked.Dirs, func(done, total int64) {
		once.Do(func() { logrus.Infof("unpacking to %s", to) })
		f.unpacked.set(done, total)
	})
}

// prefetch unpacks the payload while joining waits for a server. If it fails, the step that needs the payload reports why.
func (f *front) prefetch(ctx context.Context) {
	if err := f.unpack(ctx); err != nil {
		logrus.WithError(err).Debug("unpacking while waiting to join")
	}
}
