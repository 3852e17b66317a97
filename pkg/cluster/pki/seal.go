package pki

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// SealKey derives a key from that of the cluster's CA, which all servers and nobody else have, for what servers keep from those who can read the
// datastore. name identifies the CA: the hash of its public key.
func SealKey(d paths.Dirs) (name string, key [32]byte, err error) {
	signer, err := readKey(clusterCA.keyFile(d))
	if err != nil {
		return "", key, fmt.Errorf("reading the key of the cluster's CA: %w", err)
	}
	if name, err = keyFingerprint(signer); err != nil {
		return "", key, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return "", key, err
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, "coracle: encryption keys in the datastore", len(key))
	if err != nil {
		return "", key, err
	}
	return name, [32]byte(derived), nil
}
