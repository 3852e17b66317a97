package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// fresh is how long after it was armed a trial may begin. A later start of the service has another cause.
const fresh = 10 * time.Minute

// engine does the part of an upgrade that happens while the service is stopped. Tests replace its fields.
type engine struct {
	place
	at           func(step string) // called before each step, so that a test can stop it there
	now          func() time.Time
	uptime       func() time.Duration
	boot         string
	removeTables func(names ...string) error // removes nft tables
}

func newEngine(data string) *engine {
	return &engine{place: place(data), at: func(string) {}, now: time.Now, uptime: uptime, boot: bootID(), removeTables: nft.Remove}
}

// Guard is run by the old version's executable before each start of the service while a trial is pending. It begins the trial
// or rolls it back. If it fails the service does not start, and the service manager tries again.
func Guard(data string) error {
	s, ok, err := Read(data)
	if err != nil {
		return err
	}
	if !ok {
		return nil
	}
	free, running, err := alone(s.Dirs)
	if err != nil || running {
		return err // a running coracle is left alone: the service reports it
	}
	defer free()
	return newEngine(data).guard()
}

// alone locks the data directory and ends processes that an earlier start left. running reports that coracle runs.
func alone(d paths.Dirs) (free func(), running bool, err error) {
	lock, err := supervise.Lock(d.Lock())
	var held *supervise.HeldError
	if errors.As(err, &held) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	children := []supervise.Program{
		{Name: state.ControlPlane, Path: d.Tool("coracle-core"), Args: []string{state.ControlPlane, d.Resolved()}},
		{Name: state.Node, Path: d.Tool("coracle-core"), Args: []string{state.Node, d.Resolved()}},
	}
	if _, err := supervise.EndLeftovers(d.Lock(), children); err != nil {
		lock.Close()
		return nil, false, err
	}
	return func() { lock.Close() }, false, nil
}

func (e *engine) guard() error {
	s, _, err := Read(string(e.place))
	if err != nil {
		return err
	}
	switch s.Phase {
	case Armed:
		if s.Boot != e.boot || e.uptime()-s.ArmedUptime > fresh {
			return e.cancel(s, errors.New("the upgrade was interrupted before it began"))
		}
		return e.begin(s)
	case Trial, Restoring:
		return e.rollBack(s)
	}
	e.tidy(s)
	return nil
}

// begin copies the datastore and swaps the executables. On a failure the old version stays as it was.
func (e *engine) begin(s State) error {
	_ = controlplaneuser.ToRoot(s.Dirs) // first: a copy of a link of the user's would be root's
	if s.Datastore {
		if s.Kept = whyNotRestored(s.Dirs, true); s.Kept != "" {
			s.Datastore = false // another server has joined since
		}
	}
	if s.OldData && !s.Datastore {
		return e.cancel(s, errors.New("the datastore cannot be restored: "+s.Kept))
	}
	if s.Datastore {
		e.at("copy datastore")
		var err error
		if s.Saved, err = saveDatastore(s.Dirs, e.trial(dataName)); err != nil {
			return e.cancel(s, err)
		}
	}
	e.at("check executable")
	if got, err := release.SumFile(next(s.Binary)); err != nil || got != s.To.SHA256 {
		return e.cancel(s, errors.Join(errors.New("the new executable is not as it was put in place"), err))
	}
	e.at("write trial")
	forget(s.Dirs)
	s.Phase, s.Began, s.BeganUptime = Trial, e.now(), e.uptime()
	now, err := e.change(func(now *State) bool {
		if now.Phase != Armed {
			return false // the watcher has given it up meanwhile
		}
		*now = s
		return true
	})
	if err != nil {
		return e.cancel(s, err)
	}
	if now.Phase != Trial {
		e.tidy(now)
		return nil
	}
	if err := e.swap(s); err != nil {
		s.Error = err.Error()
		return e.rollBack(s)
	}
	return nil
}

// dataName is the copy of the datastore beside the executable of an earlier version. reserveName is a file that reserves the
// disk space that a rollback needs.
const (
	dataName    = "server"
	reserveName = "reserve"
)

func (e *engine) swap(s State) error {
	if s.Back || s.downgrade() {
		if err := errors.Join(e.forOlder(s.Dirs), ForgetData(s.Dirs)); err != nil {
			return err
		}
	}
	if s.OldData {
		if err := e.replaceDatastore(s.Dirs, e.previous(dataName)); err != nil {
			return err
		}
	}
	e.at("swap executable")
	if err := os.Rename(next(s.Binary), s.Binary); err != nil {
		return fmt.Errorf("putting the new executable in place: %w", err)
	}
	e.at("sync swap")
	return atomicfile.SyncDir(filepath.Dir(s.Binary))
}

// rollBack restores the state before the trial.
func (e *engine) rollBack(s State) error {
	_ = os.Remove(e.trial(reserveName)) // the new version may have filled the disk
	if s.Phase != Restoring {
		s.Error = cmp.Or(s.Error, e.why(s))
		if s.Datastore && paths.Exists(peersMark(s.Dirs)) {
			s.Datastore, s.Kept = false, "another server joined while the new version was on trial"
		}
		if s.Datastore {
			s.Failed = e.failed(e.now())
		}
		e.at("write restoring")
		s.Phase = Restoring
		if err := e.write(s); err != nil {
			return err
		}
	}
	if s.Datastore {
		if err := e.restoreDatastore(s.Dirs, e.trial(dataName), s.Saved, s.Failed); err != nil {
			return err
		}
	}
	_ = e.forOlder(s.Dirs) // nothing keeps the old version from starting, except the record of a newer one
	if err := ForgetData(s.Dirs); err != nil {
		return err
	}
	if err := e.swapBack(s); err != nil {
		return err
	}
	e.at("write rolled back")
	s.Phase, s.Ended = RolledBack, e.now()
	if err := e.write(s); err != nil {
		return err
	}
	e.tidy(s)
	return nil
}

// swapBack puts the old executable back in place. If both names are the same file, a rename does nothing.
func (e *engine) swapBack(s State) error {
	e.at("swap executable back")
	old := back(s.Binary)
	if err := os.Rename(old, s.Binary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("putting the old executable back: %w", err)
	}
	if err := atomicfile.SyncDir(filepath.Dir(s.Binary)); err != nil {
		return err
	}
	if got, err := release.SumFile(s.Binary); err != nil || got != s.From.SHA256 { // the file beside it was removed
		e.at("copy executable back")
		removeUnfinished(s.Binary)
		if err := atomicfile.Copy(e.trial(binaryName), s.Binary, 0o755); err != nil {
			return fmt.Errorf("putting the old executable back: %w", err)
		}
	}
	return nil
}

// cancel ends an upgrade whose trial has not begun.
func (e *engine) cancel(s State, why error) error {
	e.at("write cancelled")
	_ = os.Remove(e.trial(reserveName)) // the disk may be full
	s.Phase, s.Error, s.Ended = Cancelled, why.Error(), e.now()
	if err := e.write(s); err != nil {
		if now, _, failed := Read(string(e.place)); failed != nil || now.Phase == Trial {
			// It was written that the trial has begun, but maybe not safely. The old version must not start, because what it writes would
			// be taken back. The guard runs again.
			return errors.Join(why, err)
		}
		// The state cannot be written either. The old version starts, and the trial expires after the time of fresh.
		_ = os.Remove(next(s.Binary))
		return nil
	}
	e.tidy(s)
	return nil
}

// end ends an upgrade that is in phase from, and removes its files.
func (e *engine) end(from, to Phase, why string) (State, error) {
	s, err := e.change(func(s *State) bool {
		if s.Phase != from {
			return false
		}
		s.Phase, s.Error, s.Ended = to, why, e.now()
		return true
	})
	if err == nil && s.Phase == to {
		e.tidy(s)
	}
	return s, err
}

// tidy removes the files of a trial that has ended, or keeps them as the previous version after a commit. It removes the
// guard's executable last: while it exists, the guard runs at each start and repeats what failed here.
func (e *engine) tidy(s State) {
	if s.Pending() {
		return
	}
	e.at("tidy")
	payload.Release(s.Dirs)
	for _, path := range []string{s.Binary, next(s.Binary), back(s.Binary)} {
		removeUnfinished(path)
	}
	_ = os.Remove(next(s.Binary))
	_ = os.Remove(back(s.Binary))
	e.pruneFailed(s.Failed)
	if s.Phase == Committed && paths.Exists(e.trial(binaryName)) {
		e.at("remove previous")
		_ = os.RemoveAll(e.previous())
		_ = os.Remove(e.trial(reserveName))
		e.at("keep previous")
		_ = os.Rename(e.trial(), e.previous())
		return
	}
	e.at("remove trial")
	_ = os.RemoveAll(e.trial(dataName))
	_ = os.RemoveAll(e.trial())
}

// unexplained is the reason for the failure of a version that left no reason; its log may have one.
const unexplained = "it ended before it could say why"

// why returns why a trial ended that neither the watcher nor the new version has decided.
func (e *engine) why(s State) string {
	if s.Boot != e.boot {
		return "the machine was restarted while it was on trial"
	}
	p, ok, err := state.Read(s.Dirs, state.Front)
	if err != nil || !ok {
		return unexplained
	}
	return cmp.Or(lastExit(p), "it ended, or was restarted, while it was on trial")
}
