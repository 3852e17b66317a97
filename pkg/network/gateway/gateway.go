// Package gateway is what the control plane and the gateway's process share: the configuration, the files in which the one leaves it for the
// other, and the request with which it is applied. The process serves the last configuration while the control plane is away.
package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// UserID is the user and the group of the gateway's process, which have no name. Like the name server's it is below 65536, so that it exists
// in user namespaces.
const UserID = 60974

// Program is the name under which coracle-core must call dataplane.RunChild.
const Program = "gateway"

// Config is what the gateway of a node serves. It contains the private keys of its certificates.
type Config struct {
	Listeners    []Listener    `json:"listeners,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Routes       []Route       `json:"routes,omitempty"`
}

// Listener is a port on which the gateway accepts connections.
type Listener struct {
	Port uint16 `json:"port"`
	TLS  bool   `json:"tls,omitempty"`
}

// String returns the listener as it is named in messages: "port 443 (HTTPS)".
func (l Listener) String() string {
	if l.TLS {
		return fmt.Sprintf("port %d (HTTPS)", l.Port)
	}
	return fmt.Sprintf("port %d (HTTP)", l.Port)
}

// Certificate is a certificate with its chain, and its private key, both in PEM.
type Certificate struct {
	Source string   `json:"source"` // "Secret NAMESPACE/NAME"
	Hosts  []string `json:"hosts"`  // that it is used for, like those of routes, whatever names are in it
	Chain  string   `json:"chain"`
	Key    string   `json:"key"`
}

// Route leads requests to a backend. Of several routes that match a request the one with the most specific host serves it, then an exact
// path before a prefix, then the longest path.
type Route struct {
	// Host is a name, "*.NAME" for all names with one more label, or empty for all hosts.
	Host string `json:"host,omitempty"`
	// Path is what a request's path must be, or begin with: /foo is a prefix of /foo and of /foo/bar, not of /foobar.
	Path string `json:"path"`
	// Exact says that the path must be equal.
	Exact bool `json:"exact,omitempty"`
	// Backend is a key of Endpoints. Empty means that the route has no backend that can serve: such requests are answered with status 503.
	Backend string `json:"backend,omitempty"`
	// Protocol is how the backend is spoken to.
	Protocol Protocol `json:"protocol,omitempty"`
}

// Protocol is how a backend is spoken to.
type Protocol string

// The protocols. The backend's certificate is not verified: an Ingress cannot say which authority made it.
const (
	HTTP  Protocol = ""      // HTTP/1.1
	H2C   Protocol = "h2c"   // HTTP/2 without TLS, as for gRPC
	HTTPS Protocol = "https" // HTTP/1.1 or 2 with TLS
)

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
