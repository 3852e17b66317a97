package encryption

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Passphrase is what somebody must know to open the encryption keys besides the keys of the cluster's CA, which are on each server's disk. It is the
// content of a file that is not on that disk, such as a credential of systemd. nil and the zero value are none.
type Passphrase struct {
	File string

	mu   sync.Mutex
	last struct {
		text, salt []byte
		seal       Seal
	}
}

// NewPassphrase returns that of a server.
func NewPassphrase(cfg config.Config) *Passphrase {
	return &Passphrase{File: cfg.API.SecretsPassphrase}
}

const (
	// passphraseLeast is how many bytes it has at least.
	passphraseLeast = 16
	// passphraseRounds are OWASP's for PBKDF2 with HMAC-SHA-512: 0.1 to 0.3 s.
	passphraseRounds = 210_000
	saltBytes        = 16
)

// Given reports whether there is a passphrase.
func (p *Passphrase) Given() bool { return p != nil && p.File != "" }

func newSalt() []byte {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // it never fails, see crypto/rand
	return salt
}

// PassphraseError is an error that passes when the file with the passphrase appears, or has another content.
type PassphraseError struct{ error }

// seal returns the seal that is derived from the passphrase. What was read once is used further if the file is gone. An error is a PassphraseError.
func (p *Passphrase) seal(salt []byte) (Seal, error) {
	if !p.Given() {
		return Seal{}, &PassphraseError{errors.New("the cluster's encryption keys are sealed with a passphrase: name a file with it on this server, with --secrets-encryption-passphrase-file")}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := os.ReadFile(p.File)
	if err != nil && p.last.text != nil && bytes.Equal(p.last.salt, salt) {
		return p.last.seal, nil
	}
	if err != nil {
		return Seal{}, &PassphraseError{fmt.Errorf("reading the passphrase for the cluster's encryption keys: %w", err)}
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) < passphraseLeast {
		return Seal{}, &PassphraseError{fmt.Errorf("the passphrase in %s has %d bytes instead of at least %d", p.File, len(text), passphraseLeast)}
	}
	if !bytes.Equal(p.last.text, text) || !bytes.Equal(p.last.salt, salt) {
		key, err := pbkdf2.Key(sha512.New, string(text), salt, passphraseRounds, len(Seal{}.Key))
		if err != nil {
			return Seal{}, err
		}
		p.last.text, p.last.salt, p.last.seal = text, salt, Seal{Key: [32]byte(key)}
	}
	return p.last.seal, nil
}

// open opens what is sealed with the passphrase inside of the seals of authorities. Without a salt nothing is.
func (p *Passphrase) open(salt, text []byte) ([]byte, error) {
	if salt == nil {
		return text, nil
	}
	seal, err := p.seal(salt)
	if err != nil {
		return nil, err
	}
	if text, err = seal.open(text); err != nil {
		return nil, &PassphraseError{errors.New("the cluster's encryption keys are sealed with another passphrase than that in " + p.File)}
	}
	return text, nil
}

// close is the opposite of open.
func (p *Passphrase) close(salt, text []byte) ([]byte, error) {
	if salt == nil {
		return text, nil
	}
	seal, err := p.seal(salt)
	if err != nil {
		return nil, err
	}
	return seal.close(text), nil
}
