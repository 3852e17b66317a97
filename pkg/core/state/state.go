// Package state reads and writes the small JSON file in which each process of coracle describes itself, so that status,
// trace, wait and reset work without the processes, even when these hang or are dead.
package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/process"
)

// The names of the processes.
const (
	Front        = "front"
	ControlPlane = "control-plane"
	Node         = "node"
)

// Process is the state of one process. The file may outlive its process: see Alive.
type Process struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"` // when main began
	// StartTicks is when the kernel started the process; see Alive.
	StartTicks uint64 `json:"startTicks"`
	// Phases are one-shot steps, in order.
	Phases []Phase `json:"phases,omitempty"`
	// Units are the components of a child process.
	Units []lifecycle.Status `json:"units,omitempty"`
	// Children are the processes that the front supervises.
	Children []Child `json:"children,omitempty"`
	// Ready is when all units or children were ready for the first time.
	Ready time.Time `json:"ready,omitzero"`
	// Details are the reports of components by key, such as the state of each manifest.
	Details map[string]json.RawMessage `json:"details,omitempty"`
}

// Phase is a one-shot step of a start.
type Phase struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Waiting names what the step waits for.
	Waiting string `json:"waiting,omitempty"`
}

// Child is a supervised process as the front sees it.
type Child struct {
	Name     string    `json:"name"`
	PID      int       `json:"pid,omitempty"`
	State    string    `json:"state"` // starting, ready, backoff, stopped
	Started  time.Time `json:"started,omitzero"`
	Ready    time.Time `json:"ready,omitzero"`
	Restarts int       `json:"restarts"`
	Status   string    `json:"status,omitempty"` // the child's last STATUS= line
	// LastExit describes the end of the last instance: its exit status and its last error.
	LastExit   string    `json:"lastExit,omitempty"`
	LastExitAt time.Time `json:"lastExitAt,omitzero"`
}

// Write replaces the process' file. It is on tmpfs and not synced.
func Write(dirs paths.Dirs, p Process) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding the state of %s: %w", p.Name, err)
	}
	return atomicfile.WriteVolatile(dirs.State(p.Name), data, 0o600)
}

// Read returns the state that a process wrote last. ok is false if it has written none since boot.
func Read(dirs paths.Dirs, name string) (p Process, ok bool, err error) {
	data, err := readOwn(dirs.State(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, false, nil
	}
	if err != nil {
		return Process{}, false, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return Process{}, false, fmt.Errorf("reading %s: %w", dirs.State(name), err)
	}
	return p, true, nil
}

// readOwn reads a file, but not through a link, a pipe or a device, so that a process which writes its state cannot make root read
// something else.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is not a file", path))
	}
	return io.ReadAll(io.LimitReader(file, maxSize))
}

// maxSize is more than a state file has with reports about thousands of objects.
const maxSize = 16 << 20

// StartTicks returns when a process was started, in clock ticks since boot. Together with the pid it identifies one process,
// because the kernel reuses pids. It returns an error for a process that has ended, even if its parent has not waited for it.
func StartTicks(pid int) (uint64, error) {
	p, err := process.Find(pid)
	if err == nil && p.Ended() {
		err = fmt.Errorf("process %d has ended", pid)
	}
	return p.Started, err
}

// BootID returns the kernel's identifier of this boot, "" if it has none.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Alive reports whether the process that wrote p still runs.
func (p Process) Alive() bool {
	ticks, err := StartTicks(p.PID)
	return err == nil && ticks == p.StartTicks
}

// Unit returns the component with a name.
func (p Process) Unit(name string) (u lifecycle.Status, ok bool) {
	if i := slices.IndexFunc(p.Units, func(u lifecycle.Status) bool { return u.Name == name }); i >= 0 {
		return p.Units[i], true
	}
	return u, false
}

// Child returns the supervised process with a name. If there is none, the other fields are zero.
func (p Process) Child(name string) Child {
	if i := slices.IndexFunc(p.Children, func(c Child) bool { return c.Name == name }); i >= 0 {
		return p.Children[i]
	}
	return Child{Name: name}
}

// APIServers is the file in which a node's balancer remembers the cluster's API servers, HOST:PORT, for a start without any.
type APIServers struct {
	Servers []string `json:"servers"`
	Former  []string `json:"former,omitempty"` // are tried when none of Servers answers
}

// ReadAPIServers reads the file. A missing file has no servers.
func ReadAPIServers(path string) (s APIServers, err error) {
	_, err = atomicfile.ReadJSON(path, &s)
	return s, err
}

// Write writes the file unless it has the same content.
func (s APIServers) Write(path string) error { return atomicfile.WriteJSON(path, s, 0o600) }
