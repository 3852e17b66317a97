package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"slices"

	"github.com/coracle-dev/coracle/pkg/cluster/formerusers"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/etcd/authorityfiles"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
)

// accountKeys are the keys for tokens of service accounts.
func accountKeys(cfg config.Config) *apiserver.AccountKeys {
	return &apiserver.AccountKeys{
		Private: pkiFile(cfg.Dirs, "sa.key"), Public: pkiFile(cfg.Dirs, "sa.pub"),
		Issuer: "https://kubernetes.default.svc." + cfg.Network.Domain,
	}
}

// watchFormer makes the guard of nodes tell who uses former authorities, and let nodes that were away renew their certificates.
func (e *joinEndpoint) watchFormer() *formerusers.Users {
	former := &formerusers.Users{}
	e.guard.Seen, e.guard.Former = former.Note, e.server.Former
	return former
}

// addAuthorities adds what follows changes of the cluster's authorities. With an external datastore there are none.
func (s storage) addAuthorities(g *lifecycle.Group, cfg config.Config, accounts *apiserver.AccountKeys, former *formerusers.Users, api *lifecycle.Unit) {
	if s.members == nil {
		return
	}
	former.Load(cfg.Dirs)
	g.Add("authorities", authorityfiles.Files{
		Dial:   s.dial,
		Prefix: encryption.Prefix(cfg.Datastore),
		Node:   cfg.Node.Name,
		Dirs:   cfg.Dirs,
		Apply:  func(files map[string][]byte) error { return adopt(cfg, files) },
		InUse: func(ctx context.Context) error {
			if !accounts.InUse() {
				return errors.New("the API server has not read sa.key again yet")
			}
			if err := acceptsClients(ctx, cfg.API.Local().String(), cfg.Dirs); err != nil {
				return err
			}
			former.Load(cfg.Dirs)
			return nil
		},
		Users: former.List,
	}, api)
}

// adopt writes the files of authorities; as another user than root, into a mark that the front takes.
func adopt(cfg config.Config, files map[string][]byte) error {
	if cfg.Dirs.Copies == "" {
		return pki.Adopt(cfg, files)
	}
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return atomicfile.Write(cfg.Dirs.Authorities(), data, 0o600)
}

// acceptsClients returns an error unless the API server accepts clients of all authorities in ca.crt: in each handshake it names those that it accepts.
func acceptsClients(ctx context.Context, address string, d paths.Dirs) error {
	var accepted [][]byte
	conn, err := (&tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, // nothing is sent
		GetClientCertificate: func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			accepted = asked.AcceptableCAs
			return &tls.Certificate{}, nil
		},
	}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	conn.Close()
	data, err := os.ReadFile(pkiFile(d, "ca.crt"))
	if err != nil {
		return err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(accepted, func(name []byte) bool { return slices.Equal(name, cert.RawSubject) }) {
			return errors.New("the API server does not accept clients of " + cert.Subject.CommonName + " yet")
		}
	}
	return nil
}
