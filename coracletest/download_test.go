package coracletest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// signer signs the releases of a mirror.
type signer struct {
	key    *rsa.PrivateKey
	mirror string
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	return signer{key, t.TempDir()}
}

func (s signer) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.mirror, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s signer) sign(t *testing.T, text string) string {
	t.Helper()
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

// release publishes a release in the format of scripts/release.
func (s signer) release(t *testing.T, version, program string) {
	t.Helper()
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	asset := "coracle-linux-" + runtime.GOARCH
	sums := sum(version+"\n") + "  version\n" + sum(program) + "  " + asset + "\n"
	s.put(t, version+"/SHA256SUMS", sums)
	s.put(t, version+"/SHA256SUMS.sig", s.sign(t, sums)+"\n")
	s.put(t, version+"/"+asset, program)
	line := version + " 1795900000\n"
	s.put(t, "channels/stable.signed", line+s.sign(t, line)+"\n")
}

func (s signer) public(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, encode("PUBLIC KEY", der), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDownload: a release is taken only with its checksum, its signature and its version, also the second time.
func TestDownload(t *testing.T) {
	const version, program = "v1.37.1+coracle.1", "#!/bin/sh\n"
	s, thief := newSigner(t), newSigner(t)
	s.release(t, version, program)
	server := httptest.NewServer(http.FileServer(http.Dir(s.mirror)))
	defer server.Close()
	from := source{mirror: server.URL, channel: "stable", key: s.public(t)}
	cache := t.TempDir()
	path, err := from.fetch(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != program {
		t.Errorf("fetched %q (%v)", data, err)
	}
	for name, spoil := range map[string]func(){
		"in the cache": func() {
			if err := os.WriteFile(path, []byte("another"), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"nothing": func() {},
	} {
		spoil()
		if got, err := from.fetch(t.Context(), cache); err != nil || got != path {
			t.Errorf("spoilt %s: %s (%v)", name, got, err)
		}
		if data, _ := os.ReadFile(path); string(data) != program {
			t.Errorf("spoilt %s: it is %q", name, data)
		}
	}

	asset := "coracle-linux-" + runtime.GOARCH
	for _, test := range []struct {
		name, want string
		spoil      func()
	}{
		{"executable", "SHA-256", func() { s.put(t, version+"/"+asset, "another") }},
		{"signature", "not made by the release key", func() { thief.mirror = s.mirror; thief.release(t, version, program) }},
		{"version", "is not v1.38.0", func() {
			s.release(t, version, program)
			if err := os.Rename(filepath.Join(s.mirror, version), filepath.Join(s.mirror, "v1.38.0")); err != nil {
				t.Fatal(err)
			}
			line := "v1.38.0 1795900000\n"
			s.put(t, "channels/stable.signed", line+s.sign(t, line)+"\n")
		}},
		{"name", "not a version", func() {
			line := "../../v1 1795900000\n"
			s.put(t, "channels/stable.signed", line+s.sign(t, line)+"\n")
		}},
	} {
		test.spoil()
		empty := t.TempDir()
		if _, err := from.fetch(t.Context(), empty); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if found, _ := filepath.Glob(empty + "/*/*"); found != nil {
			t.Errorf("%s: kept %s", test.name, found)
		}
	}
}

// TestStalledDownload: a mirror that stops sending, before its answer or within a file, does not hang a test.
func TestStalledDownload(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "within") {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "a part")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	defer server.Close()
	defer close(ended)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	from := source{mirror: server.URL, stall: 50 * time.Millisecond}
	for _, file := range []string{"before", "within"} {
		path := filepath.Join(t.TempDir(), "file")
		if err := from.download(ctx, path, "", file); err == nil || !strings.Contains(err.Error(), "sends nothing for 50ms") {
			t.Errorf("%s: %v", file, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
			t.Errorf("%s: left %v", file, left)
		}
	}
}

// TestReleaseKey: the key is that of install.sh.
func TestReleaseKey(t *testing.T) {
	script, err := os.ReadFile("../install.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), releaseKey) {
		t.Error("install.sh has another key")
	}
}

// TestWhatIsMissing: what is missing is said in one sentence.
func TestWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := findEngine(t.Context()); err == nil || !strings.Contains(err.Error(), "go test -exec sudo") {
		t.Errorf("without an engine: %v", err)
	}
	t.Setenv("CORACLE", "/none/coracle")
	if _, err := executable(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "CORACLE") {
		t.Errorf("with a path that is not there: %v", err)
	}
	t.Setenv("CORACLE", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("INSTALL_CORACLE_MIRROR", t.TempDir())
	if _, err := executable(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "not in PATH") {
		t.Errorf("without a release: %v", err)
	}
}
