package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// APIServers is the file in which a node's balancer remembers the cluster's API servers, HOST:PORT, for a start without any.
type APIServers struct {
	Servers []string `json:"servers"`
	Former  []string `json:"former,omitempty"` // are tried when none of Servers answers
}

// ReadAPIServers reads the file. A missing file has no servers.
func ReadAPIServers(path string) (s APIServers, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return APIServers{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return s, nil
}

// Write writes the file unless it has the same content.
func (s APIServers) Write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = atomicfile.WriteIfChanged(path, append(data, '\n'), 0o600)
	return err
}
