package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kubeconfig"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Report is the result of one pass over the table.
type Report struct {
	// Issued names the certificates that were issued.
	Issued []string
	// Next is the time of the next renewal, zero if there is none.
	Next time.Time
}

func (r *Report) note(l leaf, cert *x509.Certificate, issued bool) {
	if issued {
		r.Issued = append(r.Issued, l.Name)
	}
	if due := renewAt(cert); !l.Rotated && (r.Next.IsZero() || due.Before(r.Next)) {
		r.Next = due
	}
}

// EnsureServer makes whatever is missing of the keys, certificates and kubeconfigs of a server and its node, and issues again what no longer
// fits the configuration or is past two thirds of its life, except what the kubelet has rotated itself. It can be called at any time and
// interrupted at any point. Errors name the file and the fix.
func EnsureServer(cfg config.Config) (Report, error) {
	server, err := ensureControlPlane(cfg)
	if err != nil {
		return server, err
	}
	node, err := ensureNode(cfg)
	server.Issued = append(server.Issued, node.Issued...)
	if !node.Next.IsZero() && node.Next.Before(server.Next) {
		server.Next = node.Next
	}
	return server, err
}

// SignerFile is the name of a file with the certificate of the cluster's CA alone, as kube-controller-manager needs it; that of the CA may have others.
const SignerFile = "ca-signer.crt"

func ensureControlPlane(cfg config.Config) (Report, error) {
	cas, err := ensureRoots(cfg.Dirs, time.Now())
	if err != nil {
		return Report{}, err
	}
	if err := writeIfChanged(filepath.Join(cfg.Dirs.PKI(), SignerFile), encodeCert(cas[clusterCA].Cert), 0o644); err != nil {
		return Report{}, err
	}
	report, err := ensureLeaves(cfg, serverLeaves, cas)
	if err != nil {
		return report, err
	}
	if err := writeKubeconfigs(cfg, serverKubeconfigs, clusterCA.certFile(cfg.Dirs), localAPI(cfg)); err != nil {
		return report, err
	}
	return report, writeAdminKubeconfig(cfg)
}

func ensureNode(cfg config.Config) (Report, error) {
	ca, err := ensureAuthority(cfg.Dirs, clusterCA, time.Now())
	if err != nil {
		return Report{}, err
	}
	trust, err := os.ReadFile(clusterCA.certFile(cfg.Dirs)) // the whole file: a CA of the user's may be a chain
	if err != nil {
		return Report{}, err
	}
	if err := writeIfChanged(nodeCA(cfg.Dirs), trust, 0o644); err != nil {
		return Report{}, err
	}
	report, err := ensureLeaves(cfg, nodeLeaves, map[authority]*pair{clusterCA: ca})
	if err != nil {
		return report, err
	}
	return report, writeKubeconfigs(cfg, nodeKubeconfigs, nodeCA(cfg.Dirs), balancer(cfg))
}

// nodeCA is the node's copy of the cluster's CA certificate.
func nodeCA(d paths.Dirs) string { return filepath.Join(d.NodePKI(), "ca.crt") }

// ensureRoots makes the authorities and the key for service accounts in parallel, because each is synced to disk before it is used.
func ensureRoots(d paths.Dirs, now time.Time) (map[authority]*pair, error) {
	pairs := make([]*pair, len(authorities))
	errs := make([]error, len(authorities)+1)
	var all sync.WaitGroup
	for i, a := range authorities {
		all.Go(func() { pairs[i], errs[i] = ensureAuthority(d, a, now) })
	}
	all.Go(func() { errs[len(authorities)] = ensureServiceAccountKey(d) })
	all.Wait()
	cas := map[authority]*pair{}
	for i, a := range authorities {
		cas[a] = pairs[i]
	}
	return cas, errors.Join(errs...)
}

func ensureLeaves(cfg config.Config, leaves []leaf, cas map[authority]*pair) (Report, error) {
	var report Report
	for _, l := range leaves {
		cert, issued, err := ensureLeaf(cfg.Dirs, l.desired(cfg), cas[l.CA], time.Now())
		if err != nil {
			return report, fmt.Errorf("making certificate %s: %w", l.Name, err)
		}
		report.note(l, cert, issued)
	}
	return report, nil
}

// writeKubeconfigs writes kubeconfigs that name certificate files, which clients read again after a renewal.
func writeKubeconfigs(cfg config.Config, all []kubeconfigFile, caFile, server string) error {
	for _, a := range all {
		l := leafNamed(a.Leaf)
		data, err := kubeconfig.Encode(kubeconfig.Access{
			Name: kubeconfig.DefaultName, User: l.commonName(cfg.Node.Name), Server: server,
			CA:   kubeconfig.Source{File: caFile},
			Cert: kubeconfig.Source{File: l.certFile(cfg.Dirs)},
			Key:  kubeconfig.Source{File: l.keyFile(cfg.Dirs)},
		})
		if err != nil {
			return err
		}
		if err := writeIfChanged(a.Dir(cfg.Dirs, a.File), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeAdminKubeconfig writes the administrator's kubeconfig, which contains the certificates, so that it can be copied to other machines.
func writeAdminKubeconfig(cfg config.Config) error {
	admin := leafNamed("admin")
	a := kubeconfig.Access{Name: kubeconfig.DefaultName, Server: localAPI(cfg)}
	for file, into := range map[string]*kubeconfig.Source{
		clusterCA.certFile(cfg.Dirs): &a.CA, admin.certFile(cfg.Dirs): &a.Cert, admin.keyFile(cfg.Dirs): &a.Key,
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		into.Data = data
	}
	data, err := kubeconfig.Encode(a)
	if err != nil {
		return err
	}
	// All users can search the directory; the mode of the file decides who can read it.
	made := ledger.Open(cfg.Dirs)
	if err := made.MkdirAll(filepath.Dir(cfg.API.KubeconfigPath), 0o755); err != nil {
		return fmt.Errorf("making directory for the kubeconfig: %w", err)
	}
	if err := made.NoteFile(cfg.API.KubeconfigPath); err != nil {
		return err
	}
	return writeIfChanged(cfg.API.KubeconfigPath, data, cfg.API.KubeconfigMode)
}

// balancer is the URL at which the parts of a node reach the API of any server.
func balancer(cfg config.Config) string { return "https://" + cfg.Node.Balancer().String() }

// localAPI is the URL at which processes of this machine reach its API server.
func localAPI(cfg config.Config) string { return "https://" + cfg.API.Local().String() }

// writeIfChanged writes a file that can be made again at any time, without syncing it to disk, unless it has the same content and mode.
func writeIfChanged(path string, data []byte, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { // also for a public file: keys are next to it
		return fmt.Errorf("making directory for %s: %w", path, err)
	}
	return atomicfile.WriteVolatile(path, data, mode)
}
