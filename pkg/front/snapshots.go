package front

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
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
	due := nextSnapshot(f.cfg.Snapshots, time.Now())
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
	cmd := exec.CommandContext(ctx, dirs.Tool("coracle-core"), "etcd", "snapshot", "save", "--scheduled", "--data-dir", dirs.Data, "--run-dir", dirs.Run)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(environment(f.cfg), "GOMAXPROCS=1", "CORACLE_CONFIG=/dev/null") // what the server was started with is known
	s3 := f.cfg.Snapshots.S3
	for name, secret := range map[string]string{"ACCESS_KEY": s3.AccessKey, "SECRET_KEY": s3.SecretKey, "SESSION_TOKEN": s3.SessionToken} {
		if secret != "" {
			cmd.Env = append(cmd.Env, "CORACLE_ETCD_S3_"+name+"="+secret)
		}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	runtime.LockOSThread() // the kernel sends the signal when the thread ends
	defer runtime.UnlockOSThread()
	err := f.super.Children.Run(cmd)
	text := strings.TrimSpace(output.String())
	switch {
	case ctx.Err() != nil:
	case err != nil:
		logrus.Errorf("no good backup of the cluster was made: %s (%s)", text, err)
	default:
		for line := range strings.Lines(text) {
			logrus.Info("backup of the cluster: " + strings.TrimSpace(line))
		}
	}
}
