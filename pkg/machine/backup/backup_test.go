package backup

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// content is the database of a backup.
func content(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

var testKeys = Keys{Password: "token"}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	d := paths.Dirs{Data: filepath.Join(dir, "data"), Config: filepath.Join(dir, "etc")}
	write(t, filepath.Join(d.PKI(), "ca.key"), "secret", 0o600)
	write(t, filepath.Join(d.PKI(), "etcd", "ca.crt"), "public", 0o644)
	write(t, d.ServerCluster(), "settings", 0o600)
	write(t, filepath.Join(d.Data, "server", "etc", "generated"), "not in it", 0o600)
	config, other := filepath.Join(d.Config, "config.yaml"), filepath.Join(d.Config, "audit.yaml")
	write(t, config, "tls-san: [a]", 0o640)
	write(t, other, "audit", 0o644)
	files, err := Gather(d, content(strings.Repeat("database", 10_000)), []string{config, other, filepath.Join(dir, "none")})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "backup"+testKeys.Suffix())
	want := Manifest{Version: "v1", Created: time.Now().UTC(), Node: "one", Revision: 7, Members: []string{"one"}}
	keys := testKeys
	if _, err := Write(path, keys, want, files); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if m, err := Read(path, keys); err != nil || m.Node != "one" || m.Revision != 7 || len(m.Files) != 6 {
		t.Errorf("%+v, %v", m, err)
	}

	// On a new machine one file of the machine's is missing, the other one is there.
	root := t.TempDir()
	write(t, filepath.Join(root, config), "mine", 0o644)
	to := filepath.Join(dir, "restored")
	_, restored, err := Extract(path, keys, to, root)
	if err != nil || len(restored) != 1 || restored[0] != filepath.Join(root, other) {
		t.Fatalf("%q, %v", restored, err)
	}
	for path, want := range map[string]string{
		filepath.Join(to, Database): strings.Repeat("database", 10_000), filepath.Join(to, "server/pki/ca.key"): "secret",
		filepath.Join(to, "server/pki/etcd/ca.crt"): "public", filepath.Join(to, "server/cluster.json"): "settings",
		filepath.Join(to, "server/etc/generated"): "", filepath.Join(root, config): "mine", filepath.Join(root, other): "audit",
	} {
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s holds %.40q", path, got)
		}
	}
	if info, err := os.Stat(filepath.Join(to, "server/pki/ca.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
}

// TestDamage cuts backups short at every hundredth byte, and changes one there.
func TestDamage(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range []Keys{{}, {Recipients: []string{identity.Recipient().String()}}} {
		dir := t.TempDir()
		d := paths.Dirs{Data: filepath.Join(dir, "data")}
		write(t, filepath.Join(d.PKI(), "ca.key"), strings.Repeat("secret", 300), 0o600)
		files, err := Gather(d, content(strings.Repeat("database", 1000)), nil)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "backup")
		if keys, err = Write(path, keys, Manifest{}, files); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(whole), identity.String()) {
			t.Error("the private key is in the backup")
		}
		try := func(name string, data []byte) {
			write(t, path, string(data), 0o600)
			if _, _, err := Extract(path, keys, filepath.Join(dir, "out"), dir); err == nil || !strings.Contains(err.Error(), "is not a backup") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
				t.Errorf("%s: something was written", name)
			}
		}
		for at := 0; at < len(whole)-4; at += 100 {
			try("cut short", whole[:at])
			changed := append([]byte(nil), whole...)
			changed[at] ^= 0x40
			try("changed", changed)
		}
		try("a text", []byte("hello"))
	}
}

// TestManifestIsChecked: zstd's own checksums do not notice that a file changed while it was copied, nor where an archive
// that somebody made writes its files.
func TestManifestIsChecked(t *testing.T) {
	for name, tt := range map[string]struct{ file, changed string }{
		"changed between description and copy": {Database, "DATABASE"},
		"outside of the directory":             {serverDir + "../../outside", "database"},
		"an absolute path":                     {"/../outside", "database"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db := filepath.Join(dir, "db")
			f := fileAt(tt.file, db)
			write(t, db, "database", 0o600)
			if err := f.describe(); err != nil {
				t.Fatal(err)
			}
			write(t, db, tt.changed, 0o600)
			path := filepath.Join(dir, "backup")
			out, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			if _, err := (Manifest{Files: []File{f}}).write(out, Keys{}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Extract(path, Keys{}, filepath.Join(dir, "out"), dir); err == nil || !strings.Contains(err.Error(), "is not a backup") {
				t.Errorf("extracted: %v", err)
			}
			for _, written := range []string{"out", "outside"} {
				if _, err := os.Lstat(filepath.Join(dir, written)); err == nil {
					t.Errorf("%s was written", written)
				}
			}
		})
	}
}

// TestMoreThanTheManifest: what the manifest does not name is not taken for a backup's.
func TestMoreThanTheManifest(t *testing.T) {
	dir := t.TempDir()
	f := fileAt(Database, filepath.Join(dir, "db"))
	write(t, filepath.Join(dir, "db"), "database", 0o600)
	if err := f.describe(); err != nil {
		t.Fatal(err)
	}
	m := Manifest{Files: []File{f}}
	text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	for more, ok := range map[int]bool{0: true, 1: false} {
		path := filepath.Join(dir, "backup")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		packed, err := zstd.NewWriter(out)
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewWriter(packed)
		err = archive.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(text))})
		if err == nil {
			_, err = archive.Write(text)
		}
		for range 1 + more {
			err = errors.Join(err, f.add(archive, m))
		}
		if err := errors.Join(err, archive.Close(), packed.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(path, Keys{}); (err == nil) != ok {
			t.Errorf("with %d more files: %v", more, err)
		}
	}
}

// TestChangedWhileWritten: a file that changes between its description and its copy leaves no backup.
func TestChangedWhileWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "backup")
	changing := fileAt(Database, "/proc/sys/kernel/random/uuid") // another one at each reading
	if _, err := Write(path, Keys{}, Manifest{}, []File{changing}); err == nil || !strings.Contains(err.Error(), "is not a backup") {
		t.Errorf("written: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCopies: backups are listed with what is known of them, and what killed saves have left is removed and nothing else.
func TestCopies(t *testing.T) {
	dir := t.TempDir()
	names := []string{"nightly-a-1", "nightly-a-2", "nightly-a-3", "other-a-1"}
	for i, name := range names {
		file := filepath.Join(dir, name+testKeys.Suffix())
		write(t, file, "backup", 0o600)
		c, err := CopyAt(file)
		if err != nil {
			t.Fatal(err)
		}
		c.Created, c.Node = time.Unix(int64(100-i), 0), "a"
		if err := c.Note(); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{".nightly-a-4.tar.zst.age.123", ".nightly-b-4.tar.zst.age.123", "note.txt", "last.json"} {
		write(t, filepath.Join(dir, other), "x", 0o600)
	}
	write(t, filepath.Join(dir, "from-before"+plainSuffix), "backup", 0o600)
	all, err := Copies(dir)
	if err != nil || len(all) != 5 || all[0].Name != "other-a-1" || all[3].Name != "nightly-a-1" || all[4].Name != "from-before" || all[0].Node != "a" {
		t.Fatalf("%+v, %v", all, err)
	}
	name := func(c Copy) string { return c.Name }
	if got := Surplus(all, name, "nightly-a-", 2); len(got) != 1 || got[0].Name != "nightly-a-3" {
		t.Errorf("surplus: %+v", got)
	}
	if got := Surplus(all, name, "nightly-a-", 0); got != nil {
		t.Errorf("surplus where all are kept: %+v", got)
	}
	if err := errors.Join(RemoveLeft(dir, "nightly-a-"), all[0].Remove()); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*other*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if len(left) != 0 || len(hidden) != 1 {
		t.Errorf("left: %q, %q", left, hidden)
	}
	if none, err := Copies(filepath.Join(dir, "none")); err != nil || none != nil {
		t.Errorf("a directory that does not exist: %v, %v", none, err)
	}
	if LastAttempt(dir) != nil {
		t.Error("a damaged note is an attempt")
	}
	if err := (Attempt{Time: time.Now(), Error: "full"}).Note(dir); err != nil || LastAttempt(dir) == nil || LastAttempt(dir).Text() != "FAILED: full" {
		t.Errorf("%+v, %v", LastAttempt(dir), err)
	}
}
