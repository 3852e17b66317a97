package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/filelock"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Phase is the progress of a trial.
type Phase string

// The phases. A trial in one of the last three has ended.
const (
	Armed      Phase = "armed"       // the next start of the service begins the trial
	Trial      Phase = "trial"       // the new version runs, or is about to start
	Restoring  Phase = "restoring"   // the old version and its datastore are being restored
	Committed  Phase = "committed"   // the new version works
	RolledBack Phase = "rolled-back" // the old version runs again, or is about to start
	Cancelled  Phase = "cancelled"   // the trial did not begin, and nothing was changed
)

// Build is one executable.
type Build struct {
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// State is the state of the present or the last trial.
type State struct {
	Phase Phase `json:"phase"`
	// Back is true for a rollback that a user started.
	Back    bool       `json:"back,omitempty"`
	Service string     `json:"service"`
	Binary  string     `json:"binary"` // path of the executable that is replaced
	Dirs    paths.Dirs `json:"dirs"`
	From    Build      `json:"from"`
	To      Build      `json:"to"`
	// Datastore is true if the datastore is copied before the trial and restored if it fails. Otherwise Kept is the reason.
	Datastore bool   `json:"datastore"`
	Kept      string `json:"kept,omitempty"`
	// OldData is true if the trial uses the datastore that was kept with the previous version.
	OldData bool `json:"oldData,omitempty"`
	// Saved are the parts of the datastore that existed when it was copied.
	Saved   []string      `json:"saved,omitempty"`
	Timeout time.Duration `json:"timeout"` // for becoming ready
	Hold    time.Duration `json:"hold"`    // for staying ready

	Boot string `json:"boot"` // the boot of the machine in which it was armed
	// ArmedUptime and BeganUptime are of that boot, see uptime. Armed, Began and Ended are for people: clocks may be set.
	ArmedUptime time.Duration `json:"armedUptime,omitempty"`
	BeganUptime time.Duration `json:"beganUptime,omitempty"`

	Armed time.Time `json:"armed"`
	Began time.Time `json:"began,omitzero"` // of the trial
	Ended time.Time `json:"ended,omitzero"`
	// Error is the reason for a rollback or cancellation.
	Error string `json:"error,omitempty"`
	// Failed is the directory with the datastore of the failed version.
	Failed string `json:"failed,omitempty"`
	// Settled is the time at which the service was ready after the end, and Unsettled the reason why it was not.
	Settled   time.Time `json:"settled,omitzero"`
	Unsettled string    `json:"unsettled,omitempty"`
}

// Pending reports whether the trial has not ended.
func (s State) Pending() bool {
	return s.Phase == Armed || s.Phase == Trial || s.Phase == Restoring
}

// Read returns the state of the present or last trial of a data directory. ok is false if there has been none.
func Read(data string) (s State, ok bool, err error) {
	text, err := os.ReadFile(place(data).state())
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, fmt.Errorf("reading the state of the upgrade: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, false, fmt.Errorf("reading %s: %w", place(data).state(), err)
	}
	return s, true, nil
}

// write makes s the state.
func (p place) write(s State) error {
	lock, err := p.hold("state.lock", waitForLock)
	if err != nil {
		return err
	}
	defer lock.Close()
	return p.put(s)
}

func (p place) put(s State) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the state of the upgrade: %w", err)
	}
	return atomicfile.Write(p.state(), text, 0o600)
}

// change has f change the state, while no other process can. f returns whether it changed it.
func (p place) change(f func(*State) bool) (State, error) {
	lock, err := p.hold("state.lock", waitForLock)
	if err != nil {
		return State{}, err
	}
	defer lock.Close()
	s, _, err := Read(string(p))
	if err != nil {
		return State{}, err
	}
	if !f(&s) {
		return s, nil
	}
	return s, p.put(s)
}

// hold takes one of three locks: the command has "lock", the watcher "watch.lock", and each change of the state "state.lock".
func (p place) hold(name string, take func(path string) (*os.File, error)) (*os.File, error) {
	if err := os.MkdirAll(p.join(), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for upgrades: %w", err)
	}
	return take(p.join(name))
}

func waitForLock(path string) (*os.File, error) { return filelock.Wait(context.Background(), path) }

// Text describes the trial in one line, for users.
func (s State) Text() string {
	step := fmt.Sprintf("the change from %s to %s", s.From.Version, s.To.Version)
	switch s.Phase {
	case Armed:
		return step + " is about to begin"
	case Trial:
		return step + " is on trial"
	case Restoring:
		return step + " did not work; " + s.From.Version + " is being restored"
	case Committed:
		return step + " was done"
	case RolledBack:
		return step + " did not work and was rolled back: " + firstLine(s.Error)
	case Cancelled:
		return step + " was not tried: " + firstLine(s.Error)
	}
	return step + " is " + string(s.Phase)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
