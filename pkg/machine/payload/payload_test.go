package payload

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// parts are the files of the tests' payload. The program is this machine's cat, to have something that runs.
func parts(t *testing.T, version string) map[string]string {
	t.Helper()
	path, err := exec.LookPath("cat")
	if err != nil {
		t.Skip("no cat on this machine")
	}
	cat, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		versionsName:      fmt.Sprintf(`[{"name":"test","version":%q}]`, version),
		licensesName:      "free\n",
		"program":         string(cat),
		"images/pause":    strings.Repeat("pause", 100_000),
		"cni/bridge->":    "../program",
		"busybox.d/sh->":  "../program",
		"nft.d/libc.so.6": "library",
	}
}

// build makes an executable with a payload, as the build does.
func build(t *testing.T, version string) payload {
	t.Helper()
	var tarball bytes.Buffer
	w := tar.NewWriter(&tarball)
	add := func(h tar.Header, data string) {
		h.Name, h.Size = place+h.Name, int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"usr/", "usr/lib/", place} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	files := parts(t, version)
	order := []string{versionsName, licensesName, "busybox.d/", "busybox.d/sh->", "cni/", "cni/bridge->", "images/", "images/pause", "nft.d/", "nft.d/libc.so.6", "program"}
	for _, name := range order {
		switch {
		case strings.HasSuffix(name, "/"):
			add(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, "")
		case strings.HasSuffix(name, "->"):
			add(tar.Header{Name: strings.TrimSuffix(name, "->"), Typeflag: tar.TypeSymlink, Linkname: files[name]}, "")
		default:
			add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, files[name])
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	half := tarball.Len() / 2 // the build compresses in chunks
	archive := append(encoder.EncodeAll(tarball.Bytes()[:half], nil), encoder.EncodeAll(tarball.Bytes()[half:], nil)...)
	sum := sha256.Sum256(archive)
	path := filepath.Join(t.TempDir(), "coracle")
	if err := os.WriteFile(path, append([]byte("the front itself"), archive...), 0o755); err != nil {
		t.Fatal(err)
	}
	return payload{executable: path, file: path, sum: hex.EncodeToString(sum[:]), size: int64(len(archive)), unpacked: int64(tarball.Len())}
}

func testDirs(t *testing.T) paths.Dirs {
	dir := t.TempDir()
	return paths.Dirs{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")}
}

// checkParts fails the test unless dir holds every file of the payload.
func checkParts(t *testing.T, dir, version string) {
	t.Helper()
	for name, want := range parts(t, version) {
		if link, ok := strings.CutSuffix(name, "->"); ok {
			if got, err := os.Readlink(filepath.Join(dir, link)); err != nil || got != want {
				t.Errorf("%s links to %q (%v), want %q", link, got, err, want)
			}
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes (%v), want %d", name, len(got), err, len(want))
		}
	}
}

func TestUnpack(t *testing.T) {
	dirs, p := testDirs(t), build(t, "1")
	var done, total int64
	if err := p.unpack(t.Context(), dirs, func(d, all int64) { done, total = d, all }); err != nil {
		t.Fatal(err)
	}
	checkParts(t, dirs.Bin(), "1")
	if done != p.size || total != p.size {
		t.Errorf("progress ended at %d of %d, want %d", done, total, p.size)
	}
	if err := p.unpack(t.Context(), dirs, func(int64, int64) { t.Error("unpacked again") }); err != nil {
		t.Fatal(err)
	}
}

func TestUnpackHeals(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"a file gone":         func(dir string) error { return os.Remove(filepath.Join(dir, "images/pause")) },
		"a file cut short":    func(dir string) error { return os.Truncate(filepath.Join(dir, "images/pause"), 7) },
		"a byte changed":      func(dir string) error { return flip(filepath.Join(dir, "images/pause"), 7) },
		"not executable":      func(dir string) error { return os.Chmod(filepath.Join(dir, "program"), 0o644) },
		"a link turned":       func(dir string) error { return relink(filepath.Join(dir, "cni/bridge"), "/etc") },
		"the list gone":       func(dir string) error { return os.Remove(filepath.Join(dir, listName)) },
		"the list unreadable": func(dir string) error { return os.WriteFile(filepath.Join(dir, listName), []byte("{"), 0o644) },
		"everything gone":     os.RemoveAll,
		"the link gone":       func(dir string) error { return os.Remove(filepath.Join(dir, "../../bin")) },
		"the link elsewhere":  func(dir string) error { return relink(filepath.Join(dir, "../../bin"), "/") },
	} {
		t.Run(name, func(t *testing.T) {
			dirs, p := testDirs(t), build(t, "1")
			if err := p.unpack(t.Context(), dirs, nil); err != nil {
				t.Fatal(err)
			}
			if err := damage(store{dirs.Payloads()}.dir(p.sum)); err != nil {
				t.Fatal(err)
			}
			if err := p.unpack(t.Context(), dirs, nil); err != nil {
				t.Fatal(err)
			}
			checkParts(t, dirs.Bin(), "1")
			if left := names(t, dirs.Payloads()); len(left) != 2 { // the lock and the payload
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestRotIsFoundAtBoot: a bit that the disk changes leaves the times of a file as they are, and is found by the first start after a boot.
func TestRotIsFoundAtBoot(t *testing.T) {
	dirs, p := testDirs(t), build(t, "1")
	if err := p.unpack(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	dir := store{dirs.Payloads()}.dir(p.sum)
	if err := flip(filepath.Join(dir, "program"), 3); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(dir, listName)) // as if the time of the change were the old one
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]unpackedFile
	if err := json.Unmarshal(list, &files); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	file := describe(info)
	file.Sum = files["program"].Sum
	files["program"] = file
	if list, err = json.Marshal(files); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, listName), list, 0o644); err != nil {
		t.Fatal(err)
	}
	unpacked := func() (again bool) {
		if err := p.unpack(t.Context(), dirs, func(int64, int64) { again = true }); err != nil {
			t.Fatal(err)
		}
		return again
	}
	if unpacked() {
		t.Error("all files are read at each start")
	}
	if err := os.Remove(dirs.PayloadCompared()); err != nil { // a boot
		t.Fatal(err)
	}
	if !unpacked() {
		t.Error("the changed bit is not found")
	}
	checkParts(t, dirs.Bin(), "1")
}

func TestDamagedExecutable(t *testing.T) {
	for name, damage := range map[string]func(path string, size int64) error{
		"a byte changed near the front": func(path string, size int64) error { return flip(path, size/10) },
		"a byte changed near the end":   func(path string, size int64) error { return flip(path, size-2) },
		"cut short by one byte":         func(path string, size int64) error { return os.Truncate(path, size-1) },
		"cut in half":                   func(path string, size int64) error { return os.Truncate(path, size/2) },
		"only the front":                func(path string, _ int64) error { return os.Truncate(path, 8) },
		"longer":                        lengthen,
	} {
		t.Run(name, func(t *testing.T) {
			dirs, p := testDirs(t), build(t, "1")
			info, err := os.Stat(p.file)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(p.file, info.Size()); err != nil {
				t.Fatal(err)
			}
			err = p.unpack(t.Context(), dirs, nil)
			if err == nil || !strings.Contains(err.Error(), "is damaged or was not copied whole") {
				t.Errorf("unpack: %v", err)
			}
			if _, err := os.Lstat(dirs.Bin()); err == nil {
				t.Error("a damaged payload was put in place")
			}
			if left := names(t, dirs.Payloads()); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestNoRoom(t *testing.T) {
	dirs, p := testDirs(t), build(t, "1")
	p.unpacked = 1 << 60
	if err := p.unpack(t.Context(), dirs, nil); err == nil || !strings.Contains(err.Error(), "MB are free") {
		t.Errorf("unpack: %v", err)
	}
}

func TestPruneSparesWhatRuns(t *testing.T) {
	dirs, first, second := testDirs(t), build(t, "1"), build(t, "2")
	if err := first.unpack(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	program := exec.Command(dirs.Tool("program"))
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if err := second.unpack(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	checkParts(t, dirs.Bin(), "2")
	checkParts(t, store{dirs.Payloads()}.dir(first.sum), "1")
	in.Close()
	if err := program.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := second.unpack(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dirs.Payloads()); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLocate(t *testing.T) {
	installed, other := build(t, "1"), build(t, "2")
	dirs, cache := testDirs(t), t.TempDir()
	if err := installed.unpack(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	got, err := installed.locate(t.Context(), dirs, cache, nil)
	if want := (store{dirs.Payloads()}).dir(installed.sum); err != nil || got != want {
		t.Errorf("of the installed version: %s (%v), want %s", got, err, want)
	}
	got, err = other.locate(t.Context(), dirs, cache, nil)
	if err != nil || !strings.HasPrefix(got, cache) {
		t.Fatalf("of another version: %s (%v), want it in %s", got, err, cache)
	}
	checkParts(t, got, "2")
	checkParts(t, dirs.Bin(), "1")
	if _, err := other.locate(t.Context(), dirs, "", nil); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("without a home: %v", err)
	}
}

func TestParts(t *testing.T) {
	p := build(t, "1")
	got, err := p.part(licensesName)
	if err != nil || string(got) != "free\n" {
		t.Errorf("licences: %q (%v)", got, err)
	}
	if _, err := p.part("nothing"); err == nil {
		t.Error("found what is not there")
	}
}

func TestParseStamp(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for _, bad := range []string{"", "a:1:2", sum, sum + ":1", sum + ":x:2", sum + ":1:2:3"} {
		if _, _, _, err := parseStamp(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if got, size, unpacked, err := parseStamp(sum + ":1:2"); got != sum || size != 1 || unpacked != 2 || err != nil {
		t.Errorf("got %s %d %d %v", got, size, unpacked, err)
	}
}

// flip changes one byte of a file, leaving its length.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := []byte{0}
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{b[0] ^ 0xff}, at)
	return err
}

func lengthen(path string, size int64) error { return os.Truncate(path, size+1) }

func relink(path, target string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
