package script

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/test/mirror"
)

// TestRelease: the signature of scripts/release, with a key that it made, is valid for install.sh, package release and
// openssl, and only the owner can read the private key.
func TestRelease(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	call(t, "", "../../scripts/release", "key", keys)
	private, public := filepath.Join(keys, "release.key"), filepath.Join(keys, "release.pub")
	if info, err := os.Stat(private); err != nil || info.Mode() != 0o600 {
		t.Errorf("the private key is %v (%v)", info.Mode(), err)
	}

	m := mirror.New(t)
	dir := m.Release(t, version, map[string]string{asset: program})
	m.Channel(t, "stable", version)
	signature := filepath.Join(dir, release.SignatureFile)
	if err := os.Remove(signature); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "channel", version+"\n")
	if out, err := run("", "../../scripts/release", "sign", dir); err == nil || !strings.Contains(out, "CORACLE_RELEASE_KEY must name") {
		t.Errorf("without a key it says %q (%v)", out, err)
	}
	call(t, private, "../../scripts/release", "sign", dir)
	line, _, _ := strings.Cut(read(t, filepath.Join(dir, "channel")), "\n")
	seconds, err := strconv.ParseInt(strings.TrimPrefix(line, version+" "), 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age < 0 || age > time.Hour {
		t.Errorf("the channel's line is %q, without the time of signing (%v)", line, err)
	}
	first := read(t, signature)
	call(t, private, "../../scripts/release", "sign", dir)
	if read(t, signature) != first {
		t.Error("two signatures of the same differ")
	}
	if got, err := (release.Source{Mirror: m.Dir, Key: read(t, public)}).Resolve(t.Context()); got != version || err != nil {
		t.Errorf("the channel is at %s: %v", got, err)
	}

	if _, err := release.Verify([]byte(read(t, filepath.Join(dir, release.SumsFile))), []byte(first), read(t, public)); err != nil {
		t.Error(err)
	}
	each(t, func(t *testing.T, shell []string) {
		s := newSandbox(t, m, shell)
		s.env["INSTALL_CORACLE_KEY"] = public
		before := s.tree()
		s.installed(s.run(), before, "install", "--bin-dir", s.bin)
	})
	raw := filepath.Join(keys, "raw")
	call(t, "", "openssl", "base64", "-d", "-A", "-in", signature, "-out", raw)
	call(t, "", "openssl", "dgst", "-sha256", "-verify", public, "-signature", raw, filepath.Join(dir, release.SumsFile))
}

func run(key string, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "CORACLE_RELEASE_KEY="+key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func call(t *testing.T, key string, argv ...string) {
	t.Helper()
	if out, err := run(key, argv...); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}
