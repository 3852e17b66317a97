package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Rotation is a change of a cluster's authorities and of the key for service accounts' tokens. All servers go through its stages together.
type Rotation struct {
	Stage RotationStage `json:"stage"`
	Began time.Time     `json:"began"`
	// Before and After are files by their names below the PKI directory. After has those that are replaced only.
	Before map[string][]byte `json:"before"`
	After  map[string][]byte `json:"after"`
	// Cross are the statements of the former authorities: certificates that they signed for the keys of the new ones, for those who know
	// the former ones only. They stay with the certificates that the new ones sign, and so do those of earlier changes. The certificates of the
	// cluster's former CAs are among them, for nodes that were away; see FormerCAs.
	Cross map[string][]byte `json:"cross"`
}

// RotationStage is how far a Rotation has come.
type RotationStage string

// The stages, in their order.
const (
	Trusting RotationStage = "trust"    // all servers accept both, and sign with the former ones
	Signing  RotationStage = "sign"     // all servers accept both, and sign with the new ones
	Finished RotationStage = "finished" // all servers accept the new ones only
)

const (
	accountKey  = "sa.key"
	crossSuffix = "-cross.crt"
	formerCAs   = "ca-former.crt"
)

// crossFiles are the names of files that servers of a cluster have if its authorities were ever changed.
func crossFiles() []string {
	files := []string{formerCAs}
	for _, a := range authorities {
		files = append(files, a.Name+crossSuffix)
	}
	return files
}

// BeginRotation returns a change of the authorities of this server's cluster. given are the new files; if there are none, all are made.
func BeginRotation(d paths.Dirs, given map[string][]byte, now time.Time) (Rotation, error) {
	r := Rotation{Stage: Trusting, Began: now.UTC().Truncate(time.Second), After: map[string][]byte{}, Cross: map[string][]byte{}}
	var err error
	if r.Before, err = ReadKeys(d); err != nil {
		return r, err
	}
	for _, a := range authorities {
		if err := r.replace(d, a, given, now); err != nil {
			return r, err
		}
	}
	switch data := given[accountKey]; {
	case len(given) == 0:
		key, err := newKey()
		if err != nil {
			return r, err
		}
		r.After[accountKey], err = encodeKey(key)
		return r, err
	case data != nil:
		if _, err := parseKey(data); err != nil {
			return r, fmt.Errorf("%s: %w", accountKey, err)
		}
		r.After[accountKey] = data
	}
	if len(r.After) == 0 {
		return r, errors.New("there is no file of an authority: it takes " + strings.Join(KeyFiles(), ", ") + ", or some of them, each .crt with its .key")
	}
	return r, nil
}

// replace adds the new files of an authority, and the statement of the former one.
func (r *Rotation) replace(d paths.Dirs, a authority, given map[string][]byte, now time.Time) error {
	former, err := ensureAuthority(d, a, now)
	if err != nil {
		return err
	}
	certs, key := given[a.Name+".crt"], given[a.Name+".key"]
	if len(given) == 0 {
		if certs, key, err = renamed(a, now); err != nil {
			return err
		}
	}
	if certs == nil && key == nil {
		return nil
	}
	next, err := parseAuthority(certs, key, now)
	if err != nil {
		return fmt.Errorf("%s.crt and %[1]s.key: %w", a.Name, err)
	}
	if bytes.Equal(next.Cert.RawSubjectPublicKeyInfo, former.Cert.RawSubjectPublicKeyInfo) {
		return fmt.Errorf("%s.crt has the key that the cluster has already: give a new one, or leave it out", a.Name)
	}
	if r.named(a, next.Cert.RawSubject) {
		return fmt.Errorf("%s.crt has the same name as an authority that the cluster has already (%s), and clients take one for the other: give the new one another name",
			a.Name, next.Cert.Subject)
	}
	template := authorityTemplate(a, now)
	template.RawSubject, template.SubjectKeyId = next.Cert.RawSubject, next.Cert.SubjectKeyId
	template.NotAfter = next.Cert.NotAfter
	cross, err := signPublic(template, next.Cert.PublicKey, former)
	if err != nil {
		return err
	}
	if err := leads(former.Cert, cross, next, now); err != nil {
		return fmt.Errorf("%s.crt: who knows the former authority would not accept what the new one signs: %w", a.Name, err)
	}
	r.After[a.Name+".crt"], r.After[a.Name+".key"] = certs, key
	r.Cross[a.Name+crossSuffix] = before(cross, r.Before[a.Name+crossSuffix])
	if a == clusterCA {
		r.Cross[formerCAs] = before(former.Cert, r.Before[formerCAs])
	}
	return nil
}

// named reports whether an authority of before has a name.
func (r *Rotation) named(a authority, subject []byte) bool {
	return slices.ContainsFunc(ParseCerts(r.Before[a.Name+".crt"]), func(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, subject) })
}

// leads fails if a certificate of the next authority cannot be verified with the former one and its statement, as with a former one that may have no
// other below it (pathlen:0), or only for certain names.
func leads(former, cross *x509.Certificate, next *pair, now time.Time) error {
	leaf, err := sign(&x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), Subject: pkix.Name{CommonName: "trial"}}, next.Key, next)
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(former)
	between.AddCert(cross)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// renamed makes an authority whose name differs from those of the former ones, which clients would confuse otherwise.
func renamed(a authority, now time.Time) (cert, key []byte, err error) {
	signer, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := authorityTemplate(a, now)
	template.Subject = pkix.Name{CommonName: a.CN + "@" + strconv.FormatInt(now.UnixNano(), 10)}
	made, err := sign(template, signer, nil)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(signer)
	return encodeCert(made), key, err
}

// parseAuthority checks the files of an authority that is to be used.
func parseAuthority(certs, key []byte, now time.Time) (*pair, error) {
	cert, err := parseCert(certs)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(key)
	if err != nil {
		return nil, err
	}
	p := &pair{cert, keyOf(cert, keys)}
	switch {
	case !cert.IsCA:
		return nil, errors.New("the certificate is not that of an authority (CA:TRUE is missing)")
	case !samePublic(cert, p.Key):
		return nil, errors.New("the key is not the certificate's")
	case selfSignedWrong(cert):
		return nil, errors.New("the certificate is damaged: its signature is not that of its content")
	case now.After(cert.NotAfter):
		return nil, fmt.Errorf("the certificate expired on %s", cert.NotAfter.Format(time.DateOnly))
	case now.Before(cert.NotBefore):
		return nil, fmt.Errorf("the certificate is not valid before %s", cert.NotBefore.Format(time.DateTime))
	}
	return p, nil
}

// Files returns the files that servers have at the present stage, by their names below the PKI directory. In each of those of an authority, the
// one that signs is the first.
func (r Rotation) Files() map[string][]byte {
	all := map[string][]byte{}
	for _, name := range KeyFiles() {
		before, after := r.Before[name], r.After[name]
		switch {
		case after == nil:
			all[name] = before
		case r.Stage == Trusting:
			all[name] = joined(before, after)
		case r.Stage == Signing:
			all[name] = joined(after, before)
		default:
			all[name] = after
		}
	}
	for _, name := range crossFiles() {
		if cross := r.Cross[name]; cross != nil && r.Stage != Trusting {
			all[name] = cross
		} else if earlier := r.Before[name]; earlier != nil {
			all[name] = earlier
		}
	}
	return all
}

// joined returns one PEM file after the other. The first may end without a newline.
func joined(first, second []byte) []byte {
	if len(first) > 0 && first[len(first)-1] != '\n' {
		first = append(slices.Clone(first), '\n')
	}
	return slices.Concat(first, second)
}

// Finish returns the last stage. It has no former key any more.
func (r Rotation) Finish() Rotation {
	r.Stage, r.Before = Finished, maps.Clone(r.Before)
	for name := range r.After {
		delete(r.Before, name)
	}
	return r
}

// ID identifies the stage of this change.
func (r Rotation) ID() string {
	if r.Stage == "" {
		return "none"
	}
	return r.Began.Format(time.RFC3339) + " " + string(r.Stage)
}

// Matches reports whether this server has the files of the present stage.
func (r Rotation) Matches(d paths.Dirs) bool {
	for name, want := range r.Files() {
		if got, err := os.ReadFile(filepath.Join(d.PKI(), name)); err != nil || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// Adopt takes over files as of Rotation.Files, and issues all certificates that these authorities have not signed. It can be interrupted at any point
// and repeated.
func Adopt(cfg config.Config, files map[string][]byte) error {
	if err := CheckSuccession(cfg.Dirs, files); err != nil {
		return err
	}
	both, err := withPresentKeys(cfg.Dirs, files)
	if err != nil {
		return err
	}
	for _, step := range []map[string][]byte{both, files} {
		if err := WriteKeys(cfg.Dirs, step); err != nil {
			return err
		}
	}
	_, err = EnsureServer(cfg)
	return err
}

// withPresentKeys adds this server's present keys of the authorities to files, so that there is always the key of the certificate.
func withPresentKeys(d paths.Dirs, files map[string][]byte) (map[string][]byte, error) {
	both := maps.Clone(files)
	for _, a := range authorities {
		present, err := os.ReadFile(a.keyFile(d))
		if err != nil {
			return nil, err
		}
		if next := files[a.Name+".key"]; !bytes.Contains(next, present) {
			both[a.Name+".key"] = joined(next, present)
		}
	}
	return both, nil
}
