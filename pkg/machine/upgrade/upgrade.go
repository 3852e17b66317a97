// Package upgrade replaces the coracle of a service by another version and takes it back if the other does not work.
//
// A trial goes through these hands, of which each can die at any line:
//
//   - The command (Upgrade) looks at the new file, puts everything in place that the trial needs, and arms it: it writes
//     down what is to be done, and changes nothing else.
//   - The guard (Guard) does it. It is the old version and runs before each start of the service while a trial is
//     pending: it copies the datastore and swaps the executables; when it runs again before the new version has
//     been found good, it puts both back.
//   - The new version (Confirm) ends the trial when it has become ready and has stayed so.
//   - The watcher (Watch) is the old version too. It restarts the service, and again if the new version is not ready in
//     time. The service manager starts it anew if it dies.
//
// What one version writes here another reads: fields are added and never change their meaning.
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

// Names of the commands that this package runs of an executable, old or new. See Before, and docs/upgrade.md.
const (
	GuardCommand  = "upgrade-guard"  // DATA-DIR
	WatchCommand  = "upgrade-watch"  // DATA-DIR
	UnpackCommand = "upgrade-unpack" // DATA-DIR
)

// Before is what a service has to run before each start, as service.Unit.Before wants it: the guard, while there is one.
func Before(data string) []string {
	guard := place(data).trial(binaryName)
	return []string{"/bin/sh", "-c", `[ ! -x "$0" ] || exec "$0" "$@"`, guard, GuardCommand, data}
}

// place is the directory in which everything about upgrades is kept, below a data directory.
type place string

const binaryName = "coracle"

func (p place) join(elem ...string) string {
	return filepath.Join(append([]string{string(p), "upgrade"}, elem...)...)
}

// state is the file of the present or last trial.
func (p place) state() string { return p.join("state.json") }

// trial holds the old version while a trial is pending: its executable and its datastore.
func (p place) trial(elem ...string) string { return p.join(append([]string{"trial"}, elem...)...) }

// previous holds the version before the present one, in the same way.
func (p place) previous(elem ...string) string {
	return p.join(append([]string{"previous"}, elem...)...)
}

// failed is where a datastore goes that was given up at the given time.
func (p place) failed(at time.Time) string {
	return p.join(failedPrefix + at.UTC().Format("20060102T150405Z"))
}

const failedPrefix = "failed-"

// next and back are the new and the old executable beside the one that runs, so that one rename swaps them, whatever
// space is left.
func next(binary string) string { return sibling(binary, "next") }
func back(binary string) string { return sibling(binary, "back") }

func sibling(binary, what string) string {
	return filepath.Join(filepath.Dir(binary), "."+filepath.Base(binary)+"."+what)
}

// bootID tells one boot of the machine from another, or one start of the container that it is.
func bootID() string {
	ticks, _ := state.StartTicks(1)
	return fmt.Sprintf("%s-%d", state.BootID(), ticks)
}
