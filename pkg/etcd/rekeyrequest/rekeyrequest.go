// Package rekeyrequest is about data of a cluster with which another cluster begins: a copy, with the same objects, that must
// share no secret with the first. Who makes the copy leaves out all keys and writes a Request; the front makes new keys,
// because of it, where it would ask for the old ones; component rekey changes the data before the API is served, and
// takes the request away.
package rekeyrequest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Request says what is different in the new cluster. It is kept in paths.Dirs.Refound.
type Request struct {
	// CA is the certificate of the former cluster's authority, PEM.
	CA []byte `json:"ca"`
	// Addresses are those of the nodes: the new one by the former one.
	Addresses map[netip.Addr]netip.Addr `json:"addresses,omitempty"`
	// Machines are the hashes of the keys by which the new cluster knows its machines, by node name: those that take
	// the places of the former ones.
	Machines map[string]string `json:"machines,omitempty"`
}

// Read reads a request. ok is false if there is none.
func Read(file string) (r Request, ok bool, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("reading how this cluster differs from the one that it is a copy of: %w", err)
	}
	return r, true, nil
}

// Write writes a request.
func (r Request) Write(file string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, data, 0o600)
}
