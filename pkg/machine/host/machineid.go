package host

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// machineIDs are the files where the kubelet looks for the id of the machine.
var machineIDs = []string{footprint.MachineID, "/var/lib/dbus/machine-id"}

// ensureMachineID writes a random machine id where there is none, as in a container or on a system without systemd and
// D-Bus. A failure is not an error: the node then has no machine id.
func ensureMachineID(l *ledger.Ledger) error {
	for _, file := range machineIDs {
		if read(file) != "" {
			return nil
		}
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	if err := l.Note(ledger.Entry{Kind: ledger.File, Name: footprint.MachineID}); err != nil {
		return err
	}
	if err := atomicfile.Write(footprint.MachineID, []byte(hex.EncodeToString(id[:])+"\n"), 0o444); err != nil {
		logrus.WithField("component", "host").WithError(err).Debug("the node has no machine id")
	}
	return nil
}
