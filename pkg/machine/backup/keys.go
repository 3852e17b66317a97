package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"
)

// Keys encrypt and open backups, in the format of age (https://age-encryption.org/v1). The zero value writes backups that are not encrypted, and opens
// those.
type Keys struct {
	// Recipients are public keys of age (age1…) or SSH (ssh-ed25519 …, ssh-rsa …). Whoever has the private key of one can open the backup.
	Recipients []string
	// Password encrypts if there are no recipients, and opens.
	Password string
	// Identity is a file with private keys of age, or with one of SSH, that open; "" for none.
	Identity string

	file []byte // the key of one file
}

// Readers are those who can open a backup.
type Readers string

// The readers: holders of the recipients' private keys, those who know the server token, or whoever has the file.
const (
	ForRecipients Readers = "recipients"
	ForToken      Readers = "token"
	ForAll        Readers = "all"
)

// Readers returns who can open what the keys encrypt.
func (k Keys) Readers() Readers {
	switch {
	case len(k.Recipients) > 0:
		return ForRecipients
	case k.Password != "":
		return ForToken
	}
	return ForAll
}

// Suffix is the end of the name of a backup that is written with the keys.
func (k Keys) Suffix() string {
	if k.Readers() == ForAll {
		return plainSuffix
	}
	return sealedSuffix
}

// CheckRecipients fails if one of the recipients is no public key.
func CheckRecipients(all []string) error {
	_, err := Keys{Recipients: all}.recipients()
	return err
}

// passwordWork is the logarithm of scrypt's work for a password: 32 MiB of memory. Tokens that coracle makes have 128 random bits, which nobody guesses.
const passwordWork = 15

func (k Keys) recipients() (all []age.Recipient, err error) {
	for _, text := range k.Recipients {
		var one age.Recipient
		var err error
		if strings.HasPrefix(text, "ssh-") {
			one, err = agessh.ParseRecipient(text)
		} else {
			var list []age.Recipient
			if list, err = age.ParseRecipients(strings.NewReader(text)); err == nil {
				one = list[0]
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the recipient %.40q of copies is no public key of age (age1…) or SSH (ssh-ed25519 …, ssh-rsa …): %w", text, err)
		}
		all = append(all, one)
	}
	if len(all) > 0 || k.Password == "" {
		return all, nil
	}
	r, err := age.NewScryptRecipient(k.Password)
	if err != nil {
		return nil, err
	}
	r.SetWorkFactor(passwordWork)
	return []age.Recipient{r}, nil
}

// encrypt returns a writer that encrypts to out, and the keys with which what is written can be opened.
func (k Keys) encrypt(out io.Writer) (io.WriteCloser, Keys, error) {
	all, err := k.recipients()
	if err != nil {
		return nil, k, err
	}
	if len(all) == 0 {
		return plain{out}, k, nil
	}
	first := &witness{Recipient: all[0]}
	all[0] = first
	w, err := age.Encrypt(out, all...)
	k.file = first.key
	return w, k, err
}

// Seal encrypts a short text.
func (k Keys) Seal(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, _, err := k.encrypt(&out)
	if err == nil {
		_, err = w.Write(text)
		err = errors.Join(err, w.Close())
	}
	return out.Bytes(), err
}

// Open returns a text that Seal has encrypted. One that is not encrypted, anyone can have written.
func (k Keys) Open(sealed []byte) ([]byte, error) {
	if !bytes.HasPrefix(sealed, []byte(ageMagic)) {
		return nil, errors.New("its key is not encrypted")
	}
	r, err := k.decrypt(bytes.NewReader(sealed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// plain is a writer that has nothing to finish.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// witness is a recipient that remembers the key of the file.
type witness struct {
	age.Recipient
	key []byte
}

func (w *witness) Wrap(key []byte) ([]*age.Stanza, error) {
	w.key = slices.Clone(key)
	return w.Recipient.Wrap(key)
}

// WrapWithLabels makes witness an age.RecipientWithLabels, as the recipients that cannot be combined with others are.
func (w *witness) WrapWithLabels(key []byte) ([]*age.Stanza, []string, error) {
	if labelled, ok := w.Recipient.(age.RecipientWithLabels); ok {
		w.key = slices.Clone(key)
		return labelled.WrapWithLabels(key)
	}
	stanzas, err := w.Wrap(key)
	return stanzas, nil, err
}

// keyError is an error of the keys, not of the file.
type keyError struct{ error }

const ageMagic = "age-encryption.org/v1\n"

// decrypt returns the content of a file, which may be encrypted.
func (k Keys) decrypt(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if start, _ := in.Peek(len(ageMagic)); string(start) != ageMagic {
		return in, nil
	}
	all, err := k.identities()
	if err != nil {
		return nil, keyError{err}
	}
	content, err := age.Decrypt(in, all...)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none) && slices.Contains(none.StanzaTypes, "scrypt"):
		return nil, keyError{errors.New("it is encrypted with the server token that its cluster had then: give that one with --token-file FILE")}
	case errors.As(err, &none):
		return nil, keyError{fmt.Errorf("it is encrypted for the holders of private keys (%s): give one with --identity FILE", strings.Join(none.StanzaTypes, ", "))}
	}
	return content, err
}

func (k Keys) identities() (all []age.Identity, err error) {
	if k.file != nil {
		return []age.Identity{age.NewInjectedFileKeyIdentity(k.file)}, nil
	}
	if k.Password != "" {
		id, err := age.NewScryptIdentity(k.Password)
		if err != nil {
			return nil, err
		}
		id.SetMaxWorkFactor(passwordWork) // the file says how much: with more, each step takes twice the memory
		all = append(all, id)
	}
	if k.Identity == "" {
		return append(all, nobody{}), nil
	}
	text, err := os.ReadFile(k.Identity)
	if err != nil {
		return nil, fmt.Errorf("reading the private key: %w", err)
	}
	if !strings.HasPrefix(strings.TrimSpace(string(text)), "-----BEGIN") {
		ids, err := age.ParseIdentities(strings.NewReader(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%s has no private key of age or SSH: %w", k.Identity, err)
		}
		return append(all, ids...), nil
	}
	id, err := agessh.ParseIdentity(text)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("the private key %s has a passphrase: take it off a copy of the file with ssh-keygen -p, and give that", k.Identity)
	}
	if err != nil {
		return nil, fmt.Errorf("%s has no private key of age or SSH: %w", k.Identity, err)
	}
	return append(all, id), nil
}

// nobody is an identity that opens nothing: age wants one at least.
type nobody struct{}

func (nobody) Unwrap([]*age.Stanza) ([]byte, error) { return nil, age.ErrIncorrectIdentity }
