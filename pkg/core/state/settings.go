package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Settings are what an upstream part was started with, after all overrides.
type Settings struct {
	// Flags are names without dashes, and values, in the order in which they are set.
	Flags [][2]string `json:"flags,omitempty"`
	// Config is the part's configuration in its own format, if that is JSON.
	Config json.RawMessage `json:"config,omitempty"`
	// TOML is the part's configuration, if that is its format.
	TOML string `json:"toml,omitempty"`
}

// Flag returns the value of a flag, and whether it is set. The last one counts.
func (s Settings) Flag(name string) (value string, ok bool) {
	for _, kv := range s.Flags {
		if kv[0] == name {
			value, ok = kv[1], true
		}
	}
	return value, ok
}

// settingsFile is the file with the settings of a process' parts. It is apart from the state, which is written much more often.
type settingsFile struct {
	PID   int                 `json:"pid"`
	Parts map[string]Settings `json:"parts"`
}

// Settings records what a part was started with; it serves as OnSettings of lifecycle.Group.
func (r *Recorder) Settings(part string, settings any) {
	s, ok := settings.(Settings)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settings == nil {
		r.settings = map[string]Settings{}
	}
	r.settings[part] = s
	data, err := json.Marshal(settingsFile{r.p.PID, r.settings})
	if err == nil {
		err = atomicfile.WriteVolatile(r.dirs.Settings(r.p.Name), data, 0o600)
	}
	if err != nil {
		logrus.WithError(err).WithField("component", part).Warn("writing what it was started with")
	}
}

// ReadSettings returns what the parts of a process were started with, by their names. running is false if they are of a process that has
// ended; there are none if it has not been started since boot.
func ReadSettings(dirs paths.Dirs, name string) (parts map[string]Settings, running bool, err error) {
	data, err := readOwn(dirs.Settings(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var file settingsFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", dirs.Settings(name), err)
	}
	p, ok, err := Read(dirs, name)
	return file.Parts, ok && p.PID == file.PID && p.Alive(), err
}
