// Package gateway is what the control plane and the gateway's process share: the configuration, the files in which the one leaves it for the
// other, and the request with which it is applied. The process serves the last configuration while the control plane is away.
package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// UserID is the user and the group of the gateway's process, which have no name. Like the name server's it is below 65536, so that it exists
// in user namespaces.
const UserID = 60974

// Program is the name under which coracle-core must call dataplane.RunChild.
const Program = "gateway"

// Endpoints are the addresses, HOST:PORT, that are ready to serve each backend.
type Endpoints map[string][]string

// Key returns the name of a backend in Endpoints.
func Key(namespace, service, port string) string {
	return strings.Join([]string{namespace, service, port}, "/")
}

// Dir is the directory of a node's gateway, on a file system that a reboot empties. Only root writes in it.
type Dir string

// Files is the directory in it for the control plane's files, in which only the control plane's user writes, and which only the gateway can read
// besides.
func (d Dir) Files() Files { return Files(filepath.Join(string(d), "files")) }

// Files is a directory with files of the control plane.
type Files string

// Config is the file with the Config. While it exists the front runs the gateway's process.
func (f Files) Config() string { return filepath.Join(string(f), "config.json") }

// Endpoints is the file with the Endpoints. It changes more often than the other one.
func (f Files) Endpoints() string { return filepath.Join(string(f), "endpoints.json") }

// Socket is where the process takes requests from the control plane.
func (d Dir) Socket() string { return filepath.Join(string(d), "gateway.sock") }

// NextSocket is Socket of a process that starts, until it is ready.
func (d Dir) NextSocket() string { return filepath.Join(string(d), "gateway-next.sock") }

// PutSocket puts the socket of a process that is ready in place of its predecessor's, and reports whether it was not there already.
func (d Dir) PutSocket() (put bool, err error) {
	err = os.Rename(d.NextSocket(), d.Socket())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Prepare makes the directory, for the user of the control plane. What an earlier process left in it stays. Only root can do this.
func (d Dir) Prepare(controlPlane int) error {
	files := string(d.Files())
	if err := os.MkdirAll(files, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(string(d), 0o711); err != nil {
		return err
	}
	unfinished, err := filepath.Glob(filepath.Join(files, unfinishedPattern)) // by a control plane that was killed
	for _, file := range unfinished {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return err
	}
	if err := os.Chown(files, controlPlane, UserID); err != nil {
		return fmt.Errorf("giving the gateway's files to its users: %w", err)
	}
	return os.Chmod(files, 0o750|os.ModeSetgid) // files in it get its group, which the control plane's user could not give them
}
