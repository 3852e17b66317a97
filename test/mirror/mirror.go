// Package mirror makes releases that are signed with a key of the test, in a directory with the layout that package
// release reads, and serves them.
package mirror

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Mirror is a directory of releases.
type Mirror struct {
	Dir string
	// Key is the public key of the signatures in PEM, and KeyFile a file with it.
	Key, KeyFile string

	private *rsa.PrivateKey
}

// New makes a mirror without releases, and a key for it.
func New(t testing.TB) *Mirror {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	m := &Mirror{Dir: t.TempDir(), private: private}
	m.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	m.KeyFile = filepath.Join(t.TempDir(), "release.pub")
	write(t, m.KeyFile, m.Key, 0o644)
	return m
}

// Empty makes a mirror without releases that uses m's key, because making a key takes long.
func (m *Mirror) Empty(t testing.TB) *Mirror {
	other := *m
	other.Dir = t.TempDir()
	return &other
}

// Release adds a version with the given files, text by name, and returns its directory.
func (m *Mirror) Release(t testing.TB, version string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(m.Dir, version)
	for name, text := range files {
		write(t, filepath.Join(dir, name), text, 0o755)
	}
	write(t, filepath.Join(dir, "version"), version+"\n", 0o644)
	m.Sign(t, dir)
	return dir
}

// Sign writes the checksums of a directory's files and their signature.
func (m *Mirror) Sign(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "SHA256SUMS") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), e.Name()))
	}
	slices.Sort(lines)
	sums := strings.Join(lines, "")
	write(t, filepath.Join(dir, "SHA256SUMS"), sums, 0o644)
	write(t, filepath.Join(dir, "SHA256SUMS.sig"), m.Signature(t, sums), 0o644)
}

// Signature is the key's signature of a text, in the format of SHA256SUMS.sig.
func (m *Mirror) Signature(t testing.TB, text string) string {
	t.Helper()
	digest := sha256.Sum256([]byte(text))
	raw, err := rsa.SignPKCS1v15(nil, m.private, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw) + "\n"
}

// Channel sets the version of a channel.
func (m *Mirror) Channel(t testing.TB, name, version string) {
	t.Helper()
	m.ChannelOf(t, name, version, time.Now())
}

// ChannelOf sets the version of a channel, signed at a time.
func (m *Mirror) ChannelOf(t testing.TB, name, version string, signed time.Time) {
	t.Helper()
	write(t, filepath.Join(m.Dir, "channels", name), version+"\n", 0o644)
	line := fmt.Sprintf("%s %d\n", version, signed.Unix())
	write(t, filepath.Join(m.Dir, "channels", name+".signed"), line+m.Signature(t, line), 0o644)
}

// Serve serves the mirror until the test ends, and returns its URL.
func (m *Mirror) Serve(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(m.Dir)))
	t.Cleanup(server.Close)
	return server.URL
}

func write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
