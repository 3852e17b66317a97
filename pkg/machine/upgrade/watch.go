package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/filelock"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// watcher restarts the service and judges the new version from outside.
type watcher struct {
	place
	manager   initsystem.Manager
	restarted chan error
	service   string
	judged    bool      // the service has been restarted because the new version does not work
	failedAt  time.Time // of the last restart that failed
	reason    string    // the service manager's error of the first restart
	uptime    func() time.Duration
	began     time.Duration // uptime when it began to watch, for a trial that a release without State.BeganUptime has begun
	ready     time.Duration // uptime when the new version was first seen ready
}

// look is the interval at which the watcher reads the state of a trial.
const look = 100 * time.Millisecond

// slack is the least time in which a version has to confirm the trial after the hold time. It has half of the time that it took to become ready, if
// that is longer: it reads its whole executable first, which may take longer than slack on a slow disk or processor.
const slack = 15 * time.Second

// Watch begins a trial that is armed and sees it to its end, wherever an earlier watcher left it.
func Watch(ctx context.Context, data string, m initsystem.Manager) error {
	lock, err := place(data).hold("watch.lock", filelock.Try)
	if errors.Is(err, filelock.ErrHeld) {
		return nil // another watcher runs
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	w := &watcher{place: place(data), manager: m, restarted: make(chan error, 8), uptime: uptime, began: uptime()}
	s, ok, err := Read(data)
	if err != nil || !ok {
		return err
	}
	w.service = s.Service
	if s.Phase == Armed || s.Phase == Restoring {
		w.restart(ctx, s)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if s, ok, err = Read(data); err != nil || !ok { // coracle was uninstalled
			return err
		}
		if !s.Pending() {
			return w.settle(ctx, s)
		}
		if err := w.judge(ctx, s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case err := <-w.restarted:
			if err := w.noteRestart(ctx, err); err != nil {
				return err
			}
		}
	}
}

func (w *watcher) restart(ctx context.Context, s State) {
	go func() { w.restarted <- w.manager.Restart(ctx, s.Service) }()
}

// noteRestart handles the end of a restart. A restart that the service manager repeats by itself is not a failure yet.
func (w *watcher) noteRestart(ctx context.Context, failed error) error {
	if failed == nil {
		return w.giveUp("the service was restarted without the step that begins an upgrade: install it again with coracle install")
	}
	if w.reason == "" {
		w.reason = failed.Error()
	}
	w.failedAt = time.Now()
	if how, err := w.manager.State(ctx, w.service); err == nil && how.Running == initsystem.Starting {
		return nil
	}
	return w.giveUp("restarting the service: " + failed.Error())
}

// patience is the time in which a service has to run its guard.
const patience = 30 * time.Second

// giveUp cancels a trial that has not begun.
func (w *watcher) giveUp(why string) error {
	_, err := newEngine(string(w.place)).end(Armed, Cancelled, why)
	return err
}

// judge restarts the service if the version on trial does not work, so that the guard restores the old one.
func (w *watcher) judge(ctx context.Context, s State) error {
	if s.Phase == Armed && !w.failedAt.IsZero() && time.Since(w.failedAt) > patience {
		return w.giveUp("the service does not start: " + w.reason)
	}
	if s.Phase != Trial || w.judged {
		return nil
	}
	why := s.Error
	if why == "" {
		why = w.fault(ctx, s)
	}
	if why == "" {
		return nil
	}
	s, err := w.change(func(s *State) bool {
		if s.Phase == Trial && s.Error == "" {
			s.Error = why
			return true
		}
		return false
	})
	if err != nil || s.Phase != Trial {
		return err
	}
	w.judged = true
	w.restart(ctx, s)
	return nil
}

// fault returns why the version on trial does not work, "" if it may continue.
func (w *watcher) fault(ctx context.Context, s State) string {
	front, _, _ := state.Read(s.Dirs, state.Front)
	if how, err := w.manager.State(ctx, s.Service); err == nil && how.Running == initsystem.Failed {
		return cmp.Or(lastExit(front), unexplained)
	}
	now, began := w.uptime(), cmp.Or(s.BeganUptime, w.began)
	switch {
	case front.Ready.IsZero():
		if w.ready = 0; now-began > s.Timeout {
			return fmt.Sprintf("it was not ready within %v%s", s.Timeout, awaited(s, front))
		}
	case w.ready == 0:
		w.ready = now
	case now-w.ready > s.Hold+max(slack, (w.ready-began)/2):
		return "it was ready, but did not confirm that it stayed so"
	}
	return ""
}

// awaited describes what a version that is not ready waits for.
func awaited(s State, front state.Process) string {
	if front.PID == 0 {
		return ", and has written no state"
	}
	var list []string
	if last := lastExit(front); last != "" {
		list = append(list, last)
	}
	for _, name := range []string{state.ControlPlane, state.Node} {
		p, ok, err := state.Read(s.Dirs, name)
		if err != nil || !ok {
			continue
		}
		for _, u := range p.Units {
			if u.State == lifecycle.Failed || u.State == lifecycle.Starting {
				list = append(list, strings.TrimSpace(fmt.Sprintf("%s is %s %s%s", u.Name, u.State, u.Error, u.Waiting)))
			}
		}
	}
	if list == nil {
		return ""
	}
	return ": " + strings.Join(list, "; ")
}

// log returns what the service manager has found in the new version's log.
func (w *watcher) log() string {
	_, log, _ := strings.Cut(w.reason, "it says:\n")
	return log
}

// settle records whether the service works after the trial.
func (w *watcher) settle(ctx context.Context, s State) error {
	if !s.Settled.IsZero() || s.Unsettled != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.Timeout, time.Minute))
	defer cancel()
	err := w.manager.Start(ctx, s.Service)
	_, changed := w.change(func(now *State) bool {
		if !now.Armed.Equal(s.Armed) { // the next upgrade has begun
			return false
		}
		if log := w.log(); log != "" && now.Error == unexplained {
			now.Error = "it ended:\n" + log
		}
		if now.Settled = time.Now(); err != nil {
			now.Settled, now.Unsettled = time.Time{}, err.Error()
		}
		return true
	})
	return changed
}

// lastExit returns why a child process ended; "" if none has.
func lastExit(front state.Process) string {
	for _, c := range front.Children {
		if c.LastExit != "" && c.LastExit != "was stopped" {
			return c.Name + " " + c.LastExit
		}
	}
	return ""
}
