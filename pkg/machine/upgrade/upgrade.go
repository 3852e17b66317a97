// Package upgrade replaces the coracle of a service by another version, and rolls back if the other version does not work.
//
// Four processes take part in a trial. Each of them can be killed at any time:
//
//   - The command (Upgrade) checks the new file, makes everything that the trial needs, and arms it: it writes the state,
//     and changes nothing else.
//   - The guard (Guard) is the old version. It runs before each start of the service while a trial is pending. It copies the
//     datastore and swaps the executables. If it runs again before the new version has been confirmed, it restores both.
//   - The new version (Confirm) ends the trial when it has become ready and has stayed so.
//   - The watcher (Watch) is the old version too. It restarts the service, and restarts it again if the new version is not
//     ready in time. The service manager restarts the watcher if it dies.
//
// Other versions read the state: new fields may be added, but the meaning of fields does not change.
package upgrade

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Target is the installed coracle that is upgraded.
type Target struct {
	Service string // the service's name
	Binary  string // the executable that it runs; a symbolic link is followed
	Dirs    paths.Dirs
	Server  bool // it is a server, not an agent
}

// Names of the commands of executables that this package runs. See Before, and docs/upgrade.md.
const (
	GuardCommand  = "upgrade-guard"  // DATA-DIR
	WatchCommand  = "upgrade-watch"  // DATA-DIR
	UnpackCommand = "upgrade-unpack" // DATA-DIR
)

// Before returns the command for initsystem.Unit.Before: the guard, if it exists.
func Before(data string) []string {
	guard := place(data).trial(binaryName)
	return []string{"/bin/sh", "-c", `[ ! -x "$0" ] || exec "$0" "$@"`, guard, GuardCommand, data}
}

// place is a data directory, with the paths of files for upgrades.
type place string

const binaryName = "coracle"

func (p place) join(elem ...string) string {
	return filepath.Join(append([]string{string(p), "upgrade"}, elem...)...)
}

// state is the file with the State of the present or last trial.
func (p place) state() string { return p.join("state.json") }

// trial has the old version's executable and datastore while a trial is pending.
func (p place) trial(elem ...string) string { return p.join(append([]string{"trial"}, elem...)...) }

// previous has the previous version's executable and datastore.
func (p place) previous(elem ...string) string {
	return p.join(append([]string{"previous"}, elem...)...)
}

// failed is the directory for the datastore of a version that failed at the given time.
func (p place) failed(at time.Time) string {
	return p.join(failedPrefix + at.UTC().Format("20060102T150405Z"))
}

const failedPrefix = "failed-"

// next and back are the new and the old executable beside the installed one, so that a rename swaps them, which needs no disk
// space.
func next(binary string) string { return sibling(binary, "next") }
func back(binary string) string { return sibling(binary, "back") }

func sibling(binary, what string) string {
	return filepath.Join(filepath.Dir(binary), "."+filepath.Base(binary)+"."+what)
}

// bootID identifies a boot of the machine, or a start of the container.
func bootID() string {
	ticks, _ := state.StartTicks(1)
	return fmt.Sprintf("%s-%d", state.BootID(), ticks)
}
