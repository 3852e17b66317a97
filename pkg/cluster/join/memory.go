package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Memory is what a machine remembers of its cluster: a file, of which package config reads the settings.
type Memory struct {
	Cluster
	// Joined says that other machines are or were servers of the cluster; see config.Join.
	Joined bool `json:"joined"`
	// Entering names the server that is being joined, while the cluster's keys are being written. A machine that was
	// interrupted then has some keys of a cluster to which it does not belong yet.
	Entering string `json:"entering,omitempty"`
}

// Recall reads a memory. There is none without a file.
func Recall(file string) (m Memory, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("reading what is remembered of the cluster: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return Memory{}, fmt.Errorf("reading what is remembered of the cluster: %s is damaged: %w", file, err)
	}
	return m, nil
}

// known returns the memory as package config needs it. from is the server that has just sent it, "" if it was remembered.
func (m Memory) known(from string) config.Known {
	return config.Known{Settings: m.Settings, Servers: m.Servers, Joined: m.Joined, From: from}
}

// Keep writes the memory, which is on disk afterwards. It may hold secrets.
func (m Memory) Keep(file string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding what is remembered of the cluster: %w", err)
	}
	_, err = atomicfile.WriteIfChanged(file, append(data, '\n'), 0o600)
	return err
}

// NoteOther is for a server that has let another one in: from now on it must not begin a cluster of its own, and its
// settings are not only its own any more. It can be called again.
func NoteOther(file string) error {
	m, err := Recall(file)
	if err != nil || m.Joined {
		return err
	}
	m.Joined = true
	return m.Keep(file)
}
