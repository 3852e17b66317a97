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

// Memory is a file with what a machine remembers of its cluster. Package config reads the settings in it.
type Memory struct {
	Cluster
	// Joined says that other machines are or were servers of the cluster; see config.Join.
	Joined bool `json:"joined"`
	// Joining is the URL of the server that is being joined, while the cluster's keys are being written. A machine that was
	// interrupted then has some keys of a cluster of which it is not a member yet.
	Joining string `json:"entering,omitempty"`
}

// LoadMemory reads a memory. It is empty if the file does not exist.
func LoadMemory(file string) (m Memory, err error) {
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

// Save writes the memory and syncs it to disk. It may contain secrets.
func (m Memory) Save(file string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding what is remembered of the cluster: %w", err)
	}
	_, err = atomicfile.WriteIfChanged(file, append(data, '\n'), 0o600)
	return err
}

// MarkJoined records that the cluster has another server. From then on this one must not start a cluster of its own, and takes its
// settings from the cluster.
func MarkJoined(file string) error {
	m, err := LoadMemory(file)
	if err != nil || m.Joined {
		return err
	}
	m.Joined = true
	return m.Save(file)
}
