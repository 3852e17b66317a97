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

// Verify checks that signature, as base64, is key's signature of sums, the text of SumsFile, and returns what is in it. key
// is a public key in PEM; "" is PublicKey. The error is an Untrusted if the signature is not right.
func Verify(sums, signature []byte, key string) (Sums, error) {
	public, err := parseKey(cmp.Or(key, PublicKey))
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(signature)))
	if err != nil {
		return nil, untrusted(SignatureFile, "it is no signature in base64")
	}
	digest := sha256.Sum256(sums)
	if rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], raw) != nil {
		return nil, untrusted(SumsFile, "the signature beside it was not made by the release key for this text")
	}
	return ParseSums(sums)
}

// parseKey reads a public key as openssl and cosign write it.
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

// ParseSums reads checksums as sha256sum writes them.
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

// checkVersion makes sure that these are the checksums of version.
func (s Sums) checkVersion(version, from string) error {
	sum := sha256.Sum256([]byte(version + "\n"))
	if s[versionFile] != hex.EncodeToString(sum[:]) {
		return untrusted(from, "the release there is signed, but is not "+version)
	}
	return nil
}

// check makes sure that what was read from a place has the checksum of the file called name.
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

// Evidence is what lay beside a local file and was found right.
type Evidence struct {
	Checksum  bool // SumsFile names the file, and its checksum is that
	Signature bool // and the key signed SumsFile
}

// VerifyLocal checks a local executable for arch against SumsFile and SignatureFile in the same directory, as far as they
// are there: a file with nothing beside it is not an error, only without evidence. key is as in Verify. The file may
// have any name.
func VerifyLocal(file, arch, key string) (Evidence, error) {
	dir := filepath.Dir(file)
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
		return Evidence{}, fmt.Errorf("checking %s: %w", file, err)
	}
	got, err := SumFile(file)
	if err != nil {
		return Evidence{}, err
	}
	if err := sums.check(Asset(arch), got, file); err != nil {
		return Evidence{}, err
	}
	seen.Checksum = true
	return seen, nil
}

// SumFile is the SHA-256 of a file, in hexadecimal digits.
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
