package doctor

import (
	"context"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

func (d *Doctor) backups(context.Context) []check.Verdict {
	if d.Config.Ephemeral.On || d.Config.Datastore.External() {
		return check.Skipf("coracle keeps no data of this cluster")
	}
	return judgeBackups(d.Config, backup.LastAttempt(d.Config.Dirs.LastSnapshot()), time.Now())
}

// backupLate is how long after its time a backup may be missing: it waits until the server is ready, and then for others.
const backupLate = 2 * time.Hour

// judgeBackups judges the last attempt to make a backup; nil if there was none.
func judgeBackups(cfg config.Config, last *backup.Attempt, now time.Time) []check.Verdict {
	if last == nil {
		if !cfg.Scheduled() {
			return check.Skipf("--etcd-disable-snapshots is given, and no backup was made by hand")
		}
		next, _ := cfg.Snapshots.NextAfter(now)
		return check.Okf("the first one is made at %s", next.Format(time.DateTime))
	}
	if !last.Begun.IsZero() && now.Sub(last.Begun) > backupLate {
		return check.Failf("see coracle logs; the kernel's log says so if there was no memory", "a backup of the cluster was begun at %s and has not ended", last.Begun.Local().Format(time.DateTime))
	}
	if last.Error != "" {
		return check.Failf("mend that, and try it: coracle etcd snapshot save", "the last backup of the cluster failed, at %s: %s", last.Time.Local().Format(time.DateTime), last.Error)
	}
	if due, err := cfg.Snapshots.NextAfter(last.Time); cfg.Scheduled() && err == nil && now.Sub(due) > backupLate {
		return check.Warnf("see coracle logs for the reason", "a backup of the cluster was due at %s, and the last one is of %s", due.Local().Format(time.DateTime), last.Time.Local().Format(time.DateTime))
	}
	return check.Okf("%s, of %s", last.Text(), last.Time.Local().Format(time.DateTime))
}
