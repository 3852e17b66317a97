package state

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Recorder updates the state file of a process. Its methods are safe for concurrent use.
type Recorder struct {
	dirs paths.Dirs

	mu       sync.Mutex
	p        Process
	settings map[string]Settings
}

// NewRecorder creates the state file of the calling process under the given name.
func NewRecorder(dirs paths.Dirs, name, version string) *Recorder {
	ticks, err := StartTicks(os.Getpid())
	if err != nil {
		logrus.WithError(err).Warn("finding out when this process was started")
	}
	r := &Recorder{dirs: dirs, p: Process{
		Name: name, PID: os.Getpid(), Version: version, Started: time.Now(), StartTicks: ticks,
	}}
	r.Update(func(*Process) {})
	return r
}

// Update changes the state and writes it. It logs a failed write, because a missing report must not stop the process.
func (r *Recorder) Update(change func(*Process)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.p)
	if err := Write(r.dirs, r.p); err != nil {
		logrus.WithError(err).Warn("writing the state file")
	}
}

// Snapshot returns the state that was written last.
func (r *Recorder) Snapshot() Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.p
	p.Phases = slices.Clone(p.Phases) // the only part that is changed in place
	return p
}

// Phase records the begin of a one-shot step; the returned function records its end.
func (r *Recorder) Phase(name string) (end func()) {
	var i int
	r.Update(func(p *Process) {
		i = len(p.Phases)
		p.Phases = append(p.Phases, Phase{Name: name, Began: time.Now()})
	})
	return func() { r.Update(func(p *Process) { p.Phases[i].Ended, p.Phases[i].Waiting = time.Now(), "" }) }
}

// Waiting records what the latest step waits for.
func (r *Recorder) Waiting(what string) {
	r.Update(func(p *Process) {
		if n := len(p.Phases); n > 0 {
			p.Phases[n-1].Waiting = what
		}
	})
}

// Units records the components; it serves as OnChange of lifecycle.Group.
func (r *Recorder) Units(units []lifecycle.Status) {
	r.Update(func(p *Process) { p.Units = units })
}

// Detail records the report of a component under its key. Nil removes it.
func (r *Recorder) Detail(component string, report any) {
	if report == nil {
		r.Update(func(p *Process) { delete(p.Details, component) })
		return
	}
	data, err := json.Marshal(report)
	if err != nil {
		logrus.WithError(err).WithField("component", component).Warn("encoding a report")
		return
	}
	r.Update(func(p *Process) {
		if p.Details == nil {
			p.Details = map[string]json.RawMessage{}
		}
		p.Details[component] = data
	})
}

// Watch returns a channel that receives a value when a process has written its state since the last value was received. The
// first value is there at once. The channel is closed when ctx is done. Watch creates the directory of the files if it is
// missing, even after a reset has removed it, so that callers can wait for processes that have not started yet.
func Watch(ctx context.Context, dirs paths.Dirs) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watch(watcher, dirs)
	}
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dirs.Run, err)
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	go func() {
		defer close(changed)
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Errors: // events were lost
			case event := <-watcher.Events:
				ended := event.Name == dir(dirs) && event.Has(fsnotify.Remove)
				if !ended && (strings.HasPrefix(filepath.Base(event.Name), ".") || !event.Has(fsnotify.Create|fsnotify.Remove)) {
					continue // a temporary file that is about to be renamed
				}
				for ended && ctx.Err() == nil {
					<-time.After(pause) // a reset removes the parent directory next
					ended = watch(watcher, dirs) != nil
				}
			}
			select {
			case changed <- struct{}{}:
			default: // a value is waiting already
			}
		}
	}()
	return changed, nil
}

// pause is how long Watch waits before it creates a removed directory again.
const pause = 100 * time.Millisecond

// dir is the directory of the state files.
func dir(dirs paths.Dirs) string { return filepath.Dir(dirs.State(Front)) }

func watch(watcher *fsnotify.Watcher, dirs paths.Dirs) error {
	if err := os.MkdirAll(dirs.Run, 0o755); err != nil { // as the front does
		return err
	}
	if err := os.MkdirAll(dir(dirs), 0o700); err != nil {
		return err
	}
	return watcher.Add(dir(dirs))
}
