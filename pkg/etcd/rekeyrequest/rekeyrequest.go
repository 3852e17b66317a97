// Package rekeyrequest reads and writes the request to turn a copy of a cluster's data into a new cluster, with the same objects and without
// a secret of the former one. The copy contains no keys of machines or authorities, but a Request. Because of it the front makes new keys instead of asking for the old
// ones, and component rekey changes the data before the API is served, and deletes the request. It is a separate package because the front
// links it, and no etcd client.
package rekeyrequest

import (
	"fmt"
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Request says what is different in the new cluster. It is kept in paths.Dirs.RekeyRequest.
type Request struct {
	// CA is the certificate of the former cluster's authority, PEM.
	CA []byte `json:"ca"`
	// Addresses maps each node's address in the former cluster to its new one.
	Addresses map[netip.Addr]netip.Addr `json:"addresses,omitempty"`
	// Seal opens the former cluster's encryption keys: pki.SealKeys of its CA. It is in nobody's use any more once the request is done.
	Seal []byte `json:"seal,omitempty"`
	// Machines are the hashes of the new machines' keys, by node name. They replace those of the former machines.
	Machines map[string]string `json:"machines,omitempty"`
}

// Read reads a request. ok is false if there is none.
func Read(file string) (r Request, ok bool, err error) {
	if ok, err = atomicfile.ReadJSON(file, &r); err != nil {
		return r, false, fmt.Errorf("reading how this cluster differs from the one that it is a copy of: %w", err)
	}
	return r, ok, nil
}

// Write writes a request.
func (r Request) Write(file string) error { return atomicfile.WriteJSON(file, r, 0o600) }
