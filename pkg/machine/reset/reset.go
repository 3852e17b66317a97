// Package reset takes everything off a machine that coracle made: processes, mounts, network namespaces, links, nft
// tables, routes, cgroups, kernel settings and files, in the order in which each lets go of the next. It goes by the
// ledger, by names below coracle's own directories and by what containerd's database mentions, and touches nothing
// else. It asks no process of coracle, so it works as well when they hang or when the payload is damaged.
//
// What a thing of each sort is and how it is removed is a row of the table in stages.go.
package reset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Reset is what is to be taken off.
type Reset struct {
	Dirs paths.Dirs
	// Config is what coracle was last started with, if that is known: paths of files outside Dirs.
	Config config.Config
	// Cache is where commands of this user unpack to; "" if nowhere. It may hold what runs now: the kernel keeps the file.
	Cache string
	// KeepData leaves what outlives a reboot of the machine: all files but those in the run directory.
	KeepData bool
	// Removed is told each thing that was removed. Nil is nobody.
	Removed func(Item)
	// Proc and Root are where the machine's /proc and file system are; empty but in tests.
	Proc, Root string
}

// Item is one thing to remove.
type Item struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"` // what a person needs to know to say yes
	remove func(context.Context) error
	vital  bool // as long as it is there nothing else may be removed
}

func (i Item) String() string {
	if i.Detail == "" {
		return i.Kind + " " + i.Name
	}
	return fmt.Sprintf("%s %s (%s)", i.Kind, i.Name, i.Detail)
}

// Plan lists what Run would remove, in its order. It changes nothing. An error means that a part of the machine could
// not be looked at; the items are valid all the same.
func (r Reset) Plan(ctx context.Context) ([]Item, error) {
	m, errs := r.look()
	var all []Item
	for _, s := range stages {
		if r.KeepData && s.data {
			continue
		}
		items, err := s.find(ctx, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("looking for %s: %w", s.what, err))
		}
		all = append(all, items...)
		for _, item := range items {
			m.planned[item.Name] = true
		}
	}
	return all, errors.Join(errs...)
}

// ErrRunning is in Run's error if coracle could not be stopped, so that nothing was removed.
var ErrRunning = errors.New("nothing was removed while coracle runs")

// rounds is how often a stage is looked at again because more turned up: processes that were being born, or mounts
// below mounts.
const rounds = 5

// Run removes everything. It goes on after a failure and returns all of them; what failed stays in the ledger, so that
// another Run can try again. Only if coracle itself cannot be stopped it removes nothing. Nobody can start coracle on
// the same directories meanwhile.
func (r Reset) Run(ctx context.Context) error {
	if r.Removed == nil {
		r.Removed = func(Item) {}
	}
	m, errs := r.look()
	for i, s := range stages {
		if r.KeepData && s.data {
			continue
		}
		if i == 1 { // whoever held the lock is gone
			for _, path := range []string{r.Dirs.Lock(), r.Dirs.RunLock()} {
				lock, err := lock(path)
				if err != nil {
					return errors.Join(append(errs, err)...)
				}
				defer lock.Close()
			}
		}
		if err := r.runStage(ctx, m, s); err != nil {
			errs = append(errs, err)
			m.failed = true
		}
		if m.abort {
			return errors.Join(append(errs, ErrRunning)...)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	if r.KeepData && len(errs) == 0 {
		return ledger.Open(r.Dirs).ForgetKernel() // what has these names from now on is somebody else's
	}
	return errors.Join(errs...)
}

// runStage removes what a stage finds until it finds nothing more.
func (r Reset) runStage(ctx context.Context, m *machine, s stage) error {
	told := map[string]bool{}
	var errs []error
	for round := range rounds {
		items, err := s.find(ctx, m)
		if err != nil {
			return fmt.Errorf("looking for %s: %w", s.what, err)
		}
		if len(items) == 0 {
			return nil
		}
		if round > 0 {
			if len(errs) == 0 && !slices.ContainsFunc(items, func(i Item) bool { return !told[i.Name] }) {
				return nil // it stays for a good reason
			}
			_ = lifecycle.Sleep(ctx, 50*time.Millisecond<<round)
		}
		errs = nil
		for _, item := range items {
			err := item.remove(ctx)
			switch {
			case err != nil && item.vital:
				m.abort = true
				return fmt.Errorf("stopping %s: %w", item.Name, err)
			case err != nil:
				errs = append(errs, fmt.Errorf("removing %s: %w", item, err))
			case !told[item.Name]:
				told[item.Name] = true
				r.Removed(item)
			}
		}
	}
	return errors.Join(errs...)
}

// look gathers what later stages would destroy the evidence of.
func (r Reset) look() (*machine, []error) {
	m := &machine{dirs: r.Dirs, config: r.Config, cache: r.Cache, proc: r.Proc, root: r.Root, planned: map[string]bool{}}
	if m.proc == "" {
		m.proc = "/proc"
	}
	var errs []error
	entries, err := ledger.Open(r.Dirs).Entries()
	if err == nil && lostLedger(r.Dirs) {
		err = fmt.Errorf("coracle has run since this machine started, but its ledger %s is missing", r.Dirs.Ledger())
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("%w; going by the usual names instead", err))
		entries = footprint.Possible(r.Config)
	}
	for _, e := range entries {
		if e.Current() {
			m.noted = append(m.noted, e)
		}
	}
	m.seen = gather(r.Dirs)
	return m, errs
}

// lostLedger reports whether there is no ledger although a start, which makes one, has left its traces: the run
// directory does not outlive the machine's boot, and reset removes it before the ledger.
func lostLedger(dirs paths.Dirs) bool {
	if _, err := os.Stat(dirs.Ledger()); !errors.Is(err, os.ErrNotExist) {
		return false
	}
	return paths.Exists(dirs.Resolved())
}

// lock keeps others from starting on the directory that path is in while it is being removed; it makes nothing.
func lock(path string) (io.Closer, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("locking coracle's directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another coracle has been started on %s meanwhile: stop what starts it, then reset again", filepath.Dir(path))
	}
	return f, nil
}
