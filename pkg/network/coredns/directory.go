package coredns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// certificates are where distributions keep the certificates of public authorities, see crypto/x509/root_linux.go.
var certificates = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// fillDirectory puts copies of what CoreDNS opens by name into the directory that is all it sees: the host's resolv.conf, and the
// authorities for upstreams with TLS. Other files in it are the user's.
func fillDirectory(dir, resolvConf string) error {
	copies := []struct {
		from []string // the first that exists
		to   string
	}{
		{[]string{resolvConf}, hostResolvConf},
		{certificates, certificates[0]},
	}
	for _, c := range copies {
		to := filepath.Join(dir, c.to)
		for _, name := range c.from {
			data, err := os.ReadFile(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.MkdirAll(filepath.Dir(to), 0o755)
			}
			if err == nil {
				_, err = atomicfile.WriteIfChanged(to, data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("copying %s for the name server: %w", name, err)
			}
			break
		}
	}
	return os.MkdirAll(dir, 0o755)
}
