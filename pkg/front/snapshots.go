package front

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// lookEvery is how often the time is compared with the next backup's: clocks are set, and machines sleep.
const lookEvery = 30 * time.Second

// makeSnapshots makes a backup of the cluster whenever one is due, until ctx is done.
func (f *front) makeSnapshots(ctx context.Context) {
	if !f.cfg.Scheduled() {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-f.became:
	}
	due := f.firstSnapshot()
	for {
		if !pause(ctx, max(0, min(lookEvery, time.Until(due)))) {
			return
		}
		now := time.Now().Round(0) // without the monotonic clock, which a clock that is set does not move
		next := nextSnapshot(f.cfg.Snapshots, now)
		if !now.Before(due) {
			f.snapshot(ctx)
		}
		if !now.Before(due) || next.Before(due) {
			due = next
		}
	}
}

// snapshotTimeout bounds a backup with its trial and its way to a slow bucket.
const snapshotTimeout = 6 * time.Hour

// settleTime is how long after the start a backup waits that was due while the server did not run.
const settleTime = 5 * time.Minute

// firstSnapshot returns when the first backup of this run is due: the next one after the last attempt, whose note was written at that time.
func (f *front) firstSnapshot() time.Time {
	now := time.Now()
	last, err := os.Stat(f.cfg.Dirs.LastSnapshot())
	if err != nil || last.ModTime().After(now) {
		return nextSnapshot(f.cfg.Snapshots, now)
	}
	due := nextSnapshot(f.cfg.Snapshots, last.ModTime())
	if due.Before(now) {
		return now.Add(settleTime)
	}
	return due
}

// nextSnapshot returns when a backup is due. The schedule was checked when the configuration was resolved; one whose days have run out is looked at
// again the next day.
func nextSnapshot(s config.Snapshots, now time.Time) time.Time {
	next, err := s.NextAfter(now)
	if err != nil {
		return now.Add(24 * time.Hour)
	}
	return next
}

// snapshot makes a backup in a process of its own, which gives its memory back, and which uses one processor at most.
func (f *front) snapshot(ctx context.Context) {
	dirs := f.cfg.Dirs
	ctx, done := context.WithTimeout(ctx, snapshotTimeout)
	defer done()
	cmd := exec.CommandContext(ctx, dirs.Tool("coracle-core"), "etcd", "snapshot", "save", "--scheduled", "--data-dir", dirs.Data, "--run-dir", dirs.Run)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	// What the server was started with is known, but for the secrets.
	cmd.Env = slices.DeleteFunc(environment(f.cfg), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return config.IsVariable(name)
	})
	cmd.Env = slices.Concat(cmd.Env, []string{"GOMAXPROCS=1", "CORACLE_CONFIG=/dev/null"}, f.cfg.Snapshots.Secrets())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	runtime.LockOSThread() // the kernel sends the signal when the thread ends
	defer runtime.UnlockOSThread()
	err := f.super.Children.Run(cmd)
	text := strings.TrimSpace(output.String())
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case err != nil:
		logrus.Errorf("backup of the cluster: %s (%s)", text, err)
	default:
		for line := range strings.Lines(text) {
			logrus.Info("backup of the cluster: " + strings.TrimSpace(line))
		}
	}
}
