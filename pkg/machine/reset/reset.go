// Package reset removes from a machine everything that coracle made: processes, mounts, network namespaces, links, nft
// tables, routes, cgroups, kernel settings and files. It removes users of a thing before the thing. To find them it reads
// the ledger, coracle's own directories and containerd's database, and it touches nothing else. It talks to no process of
// coracle, so that it works when they hang or when the payload is damaged.
//
// The table in stages.go has a row for each kind of thing.
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

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/filelock"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Reset says what to remove.
type Reset struct {
	Dirs paths.Dirs
	// Config is the configuration of the last start, if known: it has the paths of files outside Dirs.
	Config config.Config
	// Cache is the directory into which commands of this user unpack the payload; "" for none. It may hold the program that
	// runs now: the kernel keeps that file until the program ends.
	Cache string
	// KeepData keeps everything that outlives a reboot: all files except those in the run directory.
	KeepData bool
	// Removed is called for each thing that was removed. It may be nil.
	Removed func(Item)
	// Proc and Root replace /proc and / in tests; otherwise they are empty.
	Proc, Root string
}

// Item is one thing to remove.
type Item struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"` // what a person should know before agreeing
	remove func(context.Context) error
	vital  bool // nothing else may be removed while it is there
}

func (i Item) String() string {
	if i.Detail == "" {
		return i.Kind + " " + i.Name
	}
	return fmt.Sprintf("%s %s (%s)", i.Kind, i.Name, i.Detail)
}

// Plan lists what Run would remove, in the same order. It changes nothing. An error means that a part of the machine could
// not be read; the items are valid nevertheless.
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

// ErrRunning is part of Run's error if coracle could not be stopped and therefore nothing was removed.
var ErrRunning = errors.New("nothing was removed while coracle runs")

// rounds is how often a stage is repeated because more things appear: processes that had just started, or mounts below
// mounts.
const rounds = 5

// Run removes everything. It continues after failures and returns all of them; the ledger then stays, so that another Run
// can try again. If coracle itself cannot be stopped, Run removes nothing. A lock prevents that coracle is started on the
// same directories meanwhile.
func (r Reset) Run(ctx context.Context) error {
	if r.Removed == nil {
		r.Removed = func(Item) {}
	}
	m, errs := r.look()
	for i, s := range stages {
		if r.KeepData && s.data {
			continue
		}
		if i == 1 { // the processes that held the locks have ended
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
		return ledger.Open(r.Dirs).ForgetKernel() // whatever gets these names from now on is not coracle's
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
				return nil // the same things are found again: they are meant to stay
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

// look reads what the stages need before the first of them removes anything.
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
	if !m.usedKubelet() {
		m.dirs.Kubelet = ""
	}
	return m, errs
}

// usedKubelet reports whether a node of coracle has run in the kubelet's directory, which is that of other distributions too. The ledger says so;
// for that of a former release, or a lost one, containerd's directory does.
func (m *machine) usedKubelet() bool {
	named := slices.ContainsFunc(m.noted, func(e ledger.Entry) bool { return e.Name == m.dirs.Kubelet && e.Kind != ledger.Propagation })
	return named || len(m.entries(ledger.Used)) == 0 && paths.Exists(m.dirs.Containerd())
}

// lostLedger reports whether the ledger is missing although coracle was started in this boot. A start writes both the ledger
// and the run directory; the run directory ends with the boot, and reset removes it before the ledger.
func lostLedger(dirs paths.Dirs) bool {
	if _, err := os.Stat(dirs.Ledger()); !errors.Is(err, os.ErrNotExist) {
		return false
	}
	return paths.Exists(dirs.Resolved())
}

// lock prevents that coracle is started while its directory is removed. path is the directory's lock file; it is not created.
func lock(path string) (io.Closer, error) {
	if !paths.Exists(path) {
		return io.NopCloser(nil), nil
	}
	f, err := filelock.Try(path)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("another coracle has been started on %s meanwhile: stop what starts it, then reset again", filepath.Dir(path))
	}
	return f, err
}
