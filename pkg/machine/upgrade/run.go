package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/filelock"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// Options has the settings of an upgrade.
type Options struct {
	File string // the new executable
	Name string // its name in messages; "" is File
	// Timeout is the time in which the new version has to become ready, and Hold the time in which it has to stay ready.
	Timeout, Hold time.Duration
	// Verify checks the copy of File that is installed, before any of it is run; nil accepts every file.
	Verify    func(file string) error
	Downgrade bool // an older version is allowed
	Back      bool // the new version is the previous one; with OldData its datastore is restored too
	OldData   bool
	DryRun    bool         // only check
	Say       func(string) // called with each step, for users; may be nil
	Launch    Launcher     // nil is Detach
}

// Launcher starts a command that outlives this process.
type Launcher func(ctx context.Context, t Target, argv []string) error

// Upgrade replaces the installed version and returns when the new one works, or when the old one has been restored: then the
// error is of class exitcode.RolledBack. A file that cannot be used is refused before anything is changed.
func Upgrade(ctx context.Context, t Target, m initsystem.Manager, o Options) (State, error) {
	u := upgrading{place: place(t.Dirs.Data), target: t, manager: m, Options: o}
	if u.Say == nil {
		u.Say = func(string) {}
	}
	if u.Name == "" {
		u.Name = o.File
	}
	real, err := filepath.EvalSymlinks(t.Binary)
	if err != nil {
		return State{}, fmt.Errorf("finding the installed executable: %w", err)
	}
	u.target.Binary = real
	lock, err := u.hold("lock", filelock.Try)
	if errors.Is(err, filelock.ErrHeld) {
		return State{}, errors.New("another upgrade is in progress: see coracle status")
	}
	if err != nil {
		return State{}, err
	}
	defer lock.Close()
	if err := u.clear(ctx); err != nil {
		return State{}, err
	}
	how, err := m.State(ctx, t.Service)
	if err != nil {
		return State{}, fmt.Errorf("looking at service %s: %w", t.Service, err)
	}
	s, err := u.prepare(ctx)
	if err != nil || o.DryRun {
		newEngine(t.Dirs.Data).tidy(State{Phase: Cancelled, Binary: real, Dirs: t.Dirs, Failed: u.lastFailed()})
		return s, err
	}
	if how.Running == initsystem.Stopped {
		return u.replace()
	}
	if err := u.start(ctx); err != nil {
		return s, errors.Join(err, newEngine(string(u.place)).cancel(s, err))
	}
	return u.follow(ctx)
}

// upgrading is one call of Upgrade.
type upgrading struct {
	place
	target  Target
	manager initsystem.Manager
	Options
}

// clear ends an interrupted upgrade of an earlier command.
func (u *upgrading) clear(ctx context.Context) error {
	s, ok, err := Read(string(u.place))
	if err != nil || !ok {
		return err
	}
	newEngine(string(u.place)).tidy(s)
	if !s.Pending() {
		return nil
	}
	if s.Phase != Armed {
		_ = u.start(ctx)
		return fmt.Errorf("an earlier upgrade is not finished: %s; see coracle status, and try again when it is", s.Text())
	}
	_, err = newEngine(string(u.place)).end(Armed, Cancelled, "it was interrupted before it began")
	return err
}

func (u *upgrading) lastFailed() string {
	s, _, _ := Read(string(u.place))
	return s.Failed
}

// prepare makes everything that a trial needs, and arms it.
func (u *upgrading) prepare(ctx context.Context) (State, error) {
	s := State{
		Phase: Armed, Back: u.Back, Service: u.target.Service, Binary: u.target.Binary, Dirs: u.target.Dirs, OldData: u.OldData,
		Timeout: u.Timeout, Hold: u.Hold, Boot: bootID(), Failed: u.lastFailed(),
	}
	if err := u.stage(ctx, &s); err != nil {
		return s, err
	}
	s.Kept = whyNotRestored(s.Dirs, u.target.Server)
	s.Datastore = s.Kept == ""
	if s.OldData && !s.Datastore {
		return s, exitcode.Usagef("the datastore cannot be restored: %s", s.Kept)
	}
	if s.Datastore {
		u.Say(fmt.Sprintf("the cluster's data, %d MB, is copied first and restored if %s does not work", datastoreSize(s.Dirs)>>20, s.To.Version))
		if err := payload.Room(s.Dirs.Data, datastoreSize(s.Dirs), "a copy of the cluster's data"); err != nil {
			return s, err
		}
	} else {
		u.Say("the datastore is not copied: " + s.Kept)
	}
	if u.DryRun {
		return s, u.tryUnpack(ctx, s)
	}
	u.Say("unpacking " + s.To.Version)
	if err := unpack(ctx, next(s.Binary), u.Name, s.Dirs.Data); err != nil {
		return s, err
	}
	if err := u.keepOld(s); err != nil {
		return s, fmt.Errorf("keeping the installed version: %w", err)
	}
	s.Armed, s.ArmedUptime = time.Now(), uptime()
	return s, u.write(s)
}

// tryUnpack checks that the file is complete and that its payload fits on the disk. It leaves nothing.
func (u *upgrading) tryUnpack(ctx context.Context, s State) error {
	temp, err := os.MkdirTemp(u.join(), "dry-run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	return unpack(ctx, next(s.Binary), u.Name, temp)
}

// stage copies the new file beside the installed one, and gets the versions of both.
func (u *upgrading) stage(ctx context.Context, s *State) error {
	if err := inspect(u.File); err != nil {
		return err
	}
	info, err := os.Stat(u.File)
	if err != nil {
		return err
	}
	if err := payload.Room(filepath.Dir(s.Binary), info.Size(), "the new executable"); err != nil {
		return err
	}
	if err := atomicfile.Copy(u.File, next(s.Binary), 0o755); err != nil {
		return fmt.Errorf("copying %s: %w", u.Name, err)
	}
	if u.Verify != nil {
		if err := u.Verify(next(s.Binary)); err != nil {
			return err
		}
	}
	if s.To, err = identify(ctx, next(s.Binary), u.Name); err != nil {
		return err
	}
	if s.From, err = identify(ctx, s.Binary, s.Binary); err != nil {
		return err
	}
	if s.From.SHA256 == s.To.SHA256 {
		return ErrSame
	}
	if u.Back && !u.OldData && u.target.Server {
		if err := sameMinor(s.From.Version, s.To.Version); err != nil {
			return err
		}
	}
	return allowed(s.From.Version, s.To.Version, u.target.Server, u.Downgrade)
}

// ErrSame is the error of an upgrade to the installed file.
var ErrSame = errors.New("this file is installed already")

// keepOld keeps what a rollback needs, so that it needs neither disk space nor a file of the new version.
func (u *upgrading) keepOld(s State) error {
	// From now on the files in the directory of the trial belong to this trial, and not to one that was committed.
	s.Phase, s.Error, s.Ended = Cancelled, "it was interrupted during the preparation", time.Now()
	if err := u.write(s); err != nil {
		return err
	}
	if err := os.RemoveAll(u.trial()); err != nil {
		return err
	}
	if err := linkOrCopy(s.Binary, back(s.Binary)); err != nil {
		return err
	}
	if err := linkOrCopy(s.Binary, u.trial(binaryName)); err != nil {
		return err
	}
	const reserve = 1 << 20
	noise := make([]byte, reserve)
	for i := range noise {
		noise[i] = byte(i*7 + i>>8) // so that no file system compresses it
	}
	if err := atomicfile.Write(u.trial(reserveName), noise, 0o600); err != nil {
		return err
	}
	return payload.Hold(s.Dirs)
}

// replace replaces the executable of a service that is stopped and stays so, without a trial.
func (u *upgrading) replace() (State, error) {
	if err := Guard(string(u.place)); err != nil {
		return State{}, err
	}
	e := newEngine(string(u.place))
	s, err := e.end(Trial, Committed, "")
	if err != nil {
		return s, err
	}
	if s.Phase == Armed {
		why := errors.New("a coracle that is not the service runs with this data directory: stop it first")
		return s, errors.Join(why, e.cancel(s, why))
	}
	u.Say("the service is stopped and stays so: its next start is the first one of " + s.To.Version + ", without a trial")
	return s, s.result()
}

// start starts the watcher.
func (u *upgrading) start(ctx context.Context) error {
	launch := u.Launch
	if launch == nil {
		launch = Detach
	}
	return launch(ctx, u.target, []string{u.trial(binaryName), WatchCommand, string(u.place)})
}
