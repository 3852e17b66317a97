package pki

import (
	"crypto"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Seal is a key for what servers keep from those who can read the datastore. Name identifies the CA from whose key it is derived: the hash of its public
// key.
type Seal struct {
	Name string
	Key  [32]byte
}

// What servers keep, each with keys of its own: who gets those of Secrets, as a local cluster's snapshot has them, must not have the others.
const (
	SealSecrets     = "coracle: encryption keys in the datastore"
	SealAuthorities = "coracle: authorities in the datastore"
	SealPieces      = "coracle: pieces of backups in buckets"
)

// SealKeys derives keys for one of the purposes from those of the cluster's CA, which all servers and nobody else have. The first is that of the present
// one; while the CA is being changed there is another one.
func SealKeys(d paths.Dirs, purpose string) (seals []Seal, err error) {
	signers, err := readKeys(clusterCA.keyFile(d))
	if err != nil {
		return nil, fmt.Errorf("reading the key of the cluster's CA: %w", err)
	}
	for _, signer := range signers {
		seal, err := sealKey(signer, purpose)
		if err != nil {
			return nil, err
		}
		seals = append(seals, seal)
	}
	return seals, nil
}

func sealKey(signer crypto.Signer, purpose string) (s Seal, err error) {
	name, errName := keyFingerprint(signer)
	secret, errKey := x509.MarshalPKCS8PrivateKey(signer)
	if err := errors.Join(errName, errKey); err != nil {
		return s, err
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, purpose, len(s.Key))
	if err != nil {
		return s, err
	}
	return Seal{name, [32]byte(derived)}, nil
}
