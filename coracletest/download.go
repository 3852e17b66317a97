package coracletest

import (
	"cmp"
	"context"
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
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// releaseKey is the public key that releases are signed with, the same as in install.sh.
const releaseKey = `-----BEGIN PUBLIC KEY-----
MIIBojANBgkqhkiG9w0BAQEFAAOCAY8AMIIBigKCAYEAzt953lfgT/nk4kVNAyPG
lQQNR0g1sRD8lWBegvUtRkkWREtcDPmJUKVc7T98pZh2SobnZCMSwYyYBagpVNqN
pcUMmtXihHUrwDmXgfWXrBUkjLKKxM3fGMD6skACeufGsMFP0pO8pKIZfaunaWke
tHyU21PTHl9H5eLh+v94WazLtBHGZUOtIPjHoXuHWQPhWwqq9w6SRTHts4EBBABk
/a45fnbQJL6cSr3RBbPkXdO69BQg7oqjzxsTVQ9uok29F4RvARer41jJvg6nvGtY
aux0uR+7puUu+TLhx01aTAq3mDHfdaJ5lndp+MpvjlE4k8/mzf24b8svIBnExw1W
h4EPxOFpuChFPgmI8HsA/JXvG7L78l/UKz8iveoTTnsdPvEdwwPsPco22ApmSzms
wosAdocaStoFNJhuTxIRlKzfWyIXw+Ox+0b9Wi8/dF/m4zuS6QK+Q4kTGvyQ/1iT
KZE2ZxN/2MUg+ZqPt0JfPcExsqu4VkJggAPZ1nuV7ZetAgMBAAE=
-----END PUBLIC KEY-----
`

// source is where releases come from. Its settings are the variables of install.sh.
type source struct {
	mirror  string // a URL or a directory
	channel string
	version string // "" is that of the channel
	key     string // a file with the public key; "" is releaseKey
	// stall is after how long without data a download fails; 0 is stallTimeout.
	stall time.Duration
}

func defaultSource() source {
	return source{
		mirror:  cmp.Or(os.Getenv("INSTALL_CORACLE_MIRROR"), "https://github.com/coracle-dev/coracle/releases/download"),
		channel: cmp.Or(os.Getenv("INSTALL_CORACLE_CHANNEL"), "stable"),
		version: os.Getenv("INSTALL_CORACLE_VERSION"),
		key:     os.Getenv("INSTALL_CORACLE_KEY"),
	}
}

var versions = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`)

// Limits of sizes in bytes, so that a server does not fill memory or disk.
const (
	textLimit       = 1 << 20
	executableLimit = 1 << 30
)

const stallTimeout = 30 * time.Second

// fetch returns the path of a release's executable in a directory. It downloads the release if it is not there, and verifies its signature and
// checksum each time.
func (s source) fetch(ctx context.Context, dir string) (string, error) {
	version := s.version
	if version == "" {
		signed, err := s.text(ctx, "channels", s.channel+".signed")
		if err != nil {
			return "", err
		}
		line, signature, _ := strings.Cut(signed, "\n")
		if err := s.verify("channel "+s.channel, line+"\n", signature); err != nil {
			return "", err
		}
		version, _, _ = strings.Cut(line, " ")
	}
	if !versions.MatchString(version) {
		return "", fmt.Errorf("%.60q is not a version such as v1.37.1+coracle.1", version)
	}
	dir = filepath.Join(dir, version)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	sums, err := s.sums(ctx, version)
	if err != nil {
		return "", err
	}
	if digest := sha256.Sum256([]byte(version + "\n")); sums["version"] != hex.EncodeToString(digest[:]) {
		return "", fmt.Errorf("the release at %s/%s is signed, but is not %[2]s", s.mirror, version)
	}
	asset := "coracle-linux-" + runtime.GOARCH
	path := filepath.Join(dir, "coracle")
	if got, err := sumOf(path); err == nil && got == sums[asset] {
		return path, nil
	}
	return path, s.download(ctx, path, sums[asset], version, asset)
}

// sums returns the checksums of a release's files, whose signature it verifies.
func (s source) sums(ctx context.Context, version string) (map[string]string, error) {
	text, err := s.text(ctx, version, "SHA256SUMS")
	if err != nil {
		return nil, err
	}
	signature, err := s.text(ctx, version, "SHA256SUMS.sig")
	if err != nil {
		return nil, err
	}
	if err := s.verify("SHA256SUMS of "+version, text, signature); err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(text) {
		if sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && len(name) > 1 {
			sums[name[1:]] = sum // after the blank or star that is the mode
		}
	}
	return sums, nil
}

// verify checks a signature of the release key: RSA, PKCS #1 v1.5, SHA-256.
func (s source) verify(name, text, signature string) error {
	key := releaseKey
	if s.key != "" {
		data, err := os.ReadFile(s.key)
		if err != nil {
			return err
		}
		key = string(data)
	}
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		return errors.New("the release key is not a public key in PEM")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("reading the release key: %w", err)
	}
	public, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return errors.New("the release key is not an RSA key")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signature))
	digest := sha256.Sum256([]byte(text))
	if err != nil || rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], raw) != nil {
		return fmt.Errorf("the signature of %s was not made by the release key", name)
	}
	return nil
}

// download writes a file with this checksum to a path, or nothing. Tests in other processes may do the same.
func (s source) download(ctx context.Context, path, sum string, elem ...string) error {
	body, err := s.open(ctx, elem...)
	if err != nil {
		return err
	}
	defer body.Close()
	part, err := os.CreateTemp(filepath.Dir(path), "part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	digest := sha256.New()
	_, err = io.Copy(io.MultiWriter(part, digest), io.LimitReader(body, executableLimit))
	if err = errors.Join(err, part.Chmod(0o700), part.Close()); err != nil {
		return fmt.Errorf("downloading %s: %w", strings.Join(elem, "/"), err)
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != sum {
		return fmt.Errorf("the SHA-256 of %s at %s is %s, and not %q as in SHA256SUMS", strings.Join(elem, "/"), s.mirror, got, sum)
	}
	return os.Rename(part.Name(), path)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	_, err = io.Copy(digest, f)
	return hex.EncodeToString(digest.Sum(nil)), err
}

// text reads a small file of the mirror.
func (s source) text(ctx context.Context, elem ...string) (string, error) {
	body, err := s.open(ctx, elem...)
	if err != nil {
		return "", err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, textLimit))
	return string(data), err
}

// open opens a file of the mirror.
func (s source) open(ctx context.Context, elem ...string) (io.ReadCloser, error) {
	if !strings.HasPrefix(s.mirror, "https://") && !strings.HasPrefix(s.mirror, "http://") {
		return os.Open(filepath.Join(append([]string{strings.TrimPrefix(s.mirror, "file://")}, elem...)...))
	}
	at := strings.TrimRight(s.mirror, "/")
	for _, e := range elem {
		at += "/" + url.QueryEscape(e)
	}
	limit := cmp.Or(s.stall, stallTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("%s sends nothing for %s: try again, or name a mirror by INSTALL_CORACLE_MIRROR", at, limit))
	})
	b := &body{ctx: ctx, timer: timer, limit: limit, cancel: cancel}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		return nil, errors.Join(err, b.Close())
	}
	b.ReadCloser = resp.Body
	if resp.StatusCode != http.StatusOK {
		b.Close()
		return nil, fmt.Errorf("%s answers %s", at, resp.Status)
	}
	return b, nil
}

// body is what a mirror sends. Its context ends if it stalls.
type body struct {
	io.ReadCloser // nil before the answer
	ctx           context.Context
	cancel        context.CancelCauseFunc
	timer         *time.Timer
	limit         time.Duration
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(b.ctx), err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	if b.ReadCloser == nil {
		return nil
	}
	return b.ReadCloser.Close()
}
