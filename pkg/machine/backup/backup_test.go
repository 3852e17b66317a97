package backup

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// TestDamage cuts a small backup short at every hundredth byte, and one of several pieces of age, which are 64 KiB, at each of these, and changes one byte there.
func TestDamage(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 300<<10) // which zstd makes no smaller
	_, _ = rand.Read(random)
	for _, one := range []struct {
		keys    Keys
		content string
		step    int
	}{
		{Keys{}, strings.Repeat("database", 1000), 100},
		{Keys{Recipients: []string{identity.Recipient().String()}}, strings.Repeat("database", 1000), 100},
		{Keys{}, string(random), 64 << 10},
		{Keys{Recipients: []string{identity.Recipient().String()}}, string(random), 64 << 10},
	} {
		keys := one.keys
		dir := t.TempDir()
		d := paths.Dirs{Data: filepath.Join(dir, "data")}
		write(t, filepath.Join(d.PKI(), "ca.key"), strings.Repeat("secret", 300), 0o600)
		files, err := Gather(d, content(one.content), nil)
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
		for at := 0; at < len(whole)-4; at += one.step {
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

// TestCopies: backups are listed with what is known of them, and of a series is removed what is not worth keeping, and nothing else.
func TestCopies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name")
	own := Series{Name: "nightly", Node: "a", Cluster: "c1"}
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	tried, failed := noon, time.Time{}
	made := func(revision int64, s Series, name string, tried time.Time) string {
		t.Helper()
		file := filepath.Join(dir, name+testKeys.Suffix())
		write(t, file, "backup", 0o600)
		c, err := CopyAt(file)
		if err != nil {
			t.Fatal(err)
		}
		c.Revision, c.Node, c.Cluster, c.Tried, c.Created = revision, s.Node, s.Cluster, tried, noon
		if err := c.Note(); err != nil {
			t.Fatal(err)
		}
		return name
	}
	year := 365 * 24 * time.Hour
	var want []string
	want = append(want, made(10, own, own.At(noon), failed))          // a later one is good
	want = append(want, made(20, own, own.At(noon.Add(year)), tried)) // the clock was wrong
	made(30, own, own.At(noon.Add(time.Hour)), tried)
	made(40, own, own.At(noon.Add(-year)), tried)
	made(50, own, own.At(noon.Add(2*time.Hour)), failed) // nothing later is good
	b := Series{Name: "nightly", Node: "a-b", Cluster: "c1"}
	made(1, b, b.At(noon), failed)                                                     // another server's
	made(2, Series{Node: "a", Cluster: "c2"}, own.At(noon.Add(time.Minute)), failed)   // another cluster's
	made(3, own, "nightly-a-keep", failed)                                             // renamed
	made(4, own, Series{Name: "on-demand", Node: "a"}.At(noon), failed)                // another series
	write(t, filepath.Join(dir, own.At(noon.Add(3*time.Hour))+plainSuffix), "", 0o600) // without a note
	all, err := Copies(dir)
	if err != nil || len(all) != 10 || all[0].Name != own.At(noon.Add(3*time.Hour)) || all[9].Revision != 50 {
		t.Fatalf("%+v, %v", all, err)
	}
	var got []string
	for _, c := range Surplus(own, all, Copy.About, 2) {
		got = append(got, c.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("surplus: %q, want %q", got, want)
	}
	if got := Surplus(own, all, Copy.About, 0); len(got) != 1 || got[0].Revision != 10 {
		t.Errorf("surplus where all are kept: %+v", got)
	}

	unfinished := []string{"." + own.At(noon) + ".tar.zst.age.123", own.At(noon.Add(9*time.Hour)) + ".tar.zst.age" + noteSuffix}
	others := []string{"." + b.At(noon) + ".tar.zst.age.123", ".note.txt", "last.json", b.At(noon.Add(9*time.Hour)) + ".tar.zst" + noteSuffix}
	for _, name := range append(unfinished, others...) {
		write(t, filepath.Join(dir, name), "x", 0o600)
	}
	before, _ := os.ReadDir(dir)
	if err := errors.Join(own.RemoveLeft(dir), all[9].Remove()); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadDir(dir)
	if gone := len(before) - len(after); gone != 4 {
		t.Errorf("%d files are gone, want the two unfinished ones, and a copy with its note", gone)
	}
	for _, name := range unfinished {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if none, err := Copies(filepath.Join(dir, "none")); err != nil || none != nil {
		t.Errorf("a directory that does not exist: %v, %v", none, err)
	}
}

func TestAttempt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "last.json")
	write(t, file, "{", 0o600)
	if LastAttempt(file) != nil {
		t.Error("a damaged note is an attempt")
	}
	if err := (Attempt{Time: time.Now(), Error: "full"}).Note(file); err != nil || LastAttempt(file) == nil || LastAttempt(file).Text() != "FAILED: full" {
		t.Errorf("%+v, %v", LastAttempt(file), err)
	}
}
