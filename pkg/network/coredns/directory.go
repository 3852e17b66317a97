package coredns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// hostFile is a file of the host that CoreDNS opens by name.
type hostFile struct {
	from []string // the first that exists is copied
	to   string   // below the directory that is all CoreDNS sees
}

// hostsFile is what the plugin hosts reads if the Corefile names no file.
const hostsFile = "/etc/hosts"

// certificates are where distributions keep the certificates of public authorities, see crypto/x509/root_linux.go.
var certificates = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// fillDirectory makes the directory that is all CoreDNS sees, with copies of what it opens by name: the host's resolv.conf and hosts, and
// the authorities for upstreams with TLS. Other files in it are the user's.
func (r *running) fillDirectory() error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("making the name server's directory: %w", err)
	}
	r.copyHostFiles(hostFile{[]string{r.ResolvConf}, hostResolvConf}, hostFile{[]string{hostsFile}, hostsFile}, hostFile{certificates, certificates[0]})
	return nil
}

// copyHostFiles copies files that have changed. The name server can do without one that cannot be copied, which is logged once.
func (r *running) copyHostFiles(files ...hostFile) {
	for _, f := range files {
		err := f.copy(r.Dir)
		if err != nil && !r.notCopied[f.to] {
			r.log.WithError(err).Warnf("a Corefile sees no current copy of the host's %s", f.to)
		}
		r.notCopied[f.to] = err != nil
	}
}

// copy copies the file to a directory, readable for everybody. A file that does not exist is no error.
func (f hostFile) copy(dir string) error {
	for _, name := range f.from {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		to := filepath.Join(dir, f.to)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			_, err = atomicfile.WriteIfChanged(to, data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("copying %s for the name server: %w", name, err)
		}
		return nil
	}
	return nil
}
