package release

import (
	"cmp"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Sums are checksums by the name of the file: SHA-256 in lower-case hexadecimal digits.
type Sums map[string]string

// Verify checks that signature, in base64, is key's signature of sums, the text of SumsFile, and returns the checksums. key is
// a public key in PEM; "" is PublicKey. The error is an Untrusted if the signature is wrong.
func Verify(sums, signature []byte, key string) (Sums, error) {
	if err := verify(sums, signature, key, SumsFile); err != nil {
		return nil, err
	}
	return ParseSums(sums)
}

// verify checks that signature, in base64, is key's signature of a text. name is the text's, for errors.
func verify(text, signature []byte, key, name string) error {
	public, err := parseKey(cmp.Or(key, PublicKey))
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(signature)))
	if err != nil {
		return untrusted(name, "its signature is not in base64")
	}
	digest := sha256.Sum256(text)
	if rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], raw) != nil {
		return untrusted(name, "its signature was not made by the release key for this text")
	}
	return nil
}

// parseKey parses a public key in the form of openssl and cosign.
func parseKey(text string) (*rsa.PublicKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("reading the release key: it is not a public key in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the release key: %w", err)
	}
	public, ok := key.(*rsa.PublicKey)
	if !ok {
		return nil, errors.New("reading the release key: it is not an RSA key; scripts/release key makes one")
	}
	return public, nil
}

// ParseSums parses checksums in the form of sha256sum.
func ParseSums(text []byte) (Sums, error) {
	sums := Sums{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != sha256.Size || len(name) < 2 {
			return nil, fmt.Errorf("reading %s: the line %.80q is not one of sha256sum's", SumsFile, line)
		}
		sums[name[1:]] = strings.ToLower(sum) // after the blank or star that is the mode
	}
	return sums, nil
}

// checkVersion checks that these are the checksums of version.
func (s Sums) checkVersion(version, from string) error {
	sum := sha256.Sum256([]byte(version + "\n"))
	if s[versionFile] != hex.EncodeToString(sum[:]) {
		return untrusted(from, "the release there is signed, but is not "+version)
	}
	return nil
}

// check checks that got, the checksum of what was read from a place, is that of the file with the given name.
func (s Sums) check(name, got, from string) error {
	switch want := s[name]; want {
	case got:
		return nil
	case "":
		return untrusted(from, fmt.Sprintf("%s does not name %s", SumsFile, name))
	default:
		return untrusted(from, fmt.Sprintf("its SHA-256 is %s, and %s is %s in %s", got, name, want, SumsFile))
	}
}

// Evidence is what was verified about a local file.
type Evidence struct {
	Checksum  bool // SumsFile has the checksum of the file
	Signature bool // the key signed SumsFile
}

// VerifyLocal checks file, an executable for arch, with those of SumsFile and SignatureFile that exist in dir. It is no error if
// neither exists; then there is no evidence. key is as in Verify. The executable may have any name; name is for errors.
func VerifyLocal(file, name, dir, arch, key string) (Evidence, error) {
	text, err := os.ReadFile(filepath.Join(dir, SumsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Evidence{}, nil
	}
	if err != nil {
		return Evidence{}, err
	}
	var seen Evidence
	var sums Sums
	signature, err := os.ReadFile(filepath.Join(dir, SignatureFile))
	switch {
	case err == nil:
		sums, err = Verify(text, signature, key)
		seen.Signature = true
	case errors.Is(err, fs.ErrNotExist):
		sums, err = ParseSums(text)
	}
	if err != nil {
		return Evidence{}, fmt.Errorf("checking %s: %w", name, err)
	}
	got, err := SumFile(file)
	if err != nil {
		return Evidence{}, err
	}
	if err := sums.check(Asset(arch), got, name); err != nil {
		return Evidence{}, err
	}
	seen.Checksum = true
	return seen, nil
}

// SumFile returns the SHA-256 of a file, in hexadecimal digits.
func SumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
