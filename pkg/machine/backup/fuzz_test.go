package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// FuzzExtract unpacks backups: one of arbitrary bytes, and one with a correct manifest for a file with an arbitrary name. No
// file is written outside the two directories.
func FuzzExtract(f *testing.F) {
	for _, name := range []string{"db", "server/pki/ca.key", machineDir + "etc/x", machineDir + "../x", "../x", "/x", "", ".", "a/../../b", "a\x00b"} {
		f.Add([]byte(name), name, name, uint32(0o600))
	}
	f.Add(pack(f, Manifest{Version: "v1"}), "db", "db", uint32(fs.ModeSetuid|0o777))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, name, inTar string, mode uint32) {
		sum := sha256.Sum256(data)
		file := File{Name: name, Mode: fs.FileMode(mode), Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
		for _, archive := range [][]byte{data, pack(t, Manifest{Version: "v1", Files: []File{file}}, entry{inTar, data})} {
			top := filepath.Join(dir, "top")
			if err := os.MkdirAll(filepath.Join(top, "root"), 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "backup")
			if err := os.WriteFile(path, archive, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, _ = Extract(path, Keys{}, filepath.Join(top, "to"), filepath.Join(top, "root"))
			for _, at := range []string{top, dir} {
				entries, err := os.ReadDir(at)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if n := e.Name(); n != "top" && n != "backup" && n != "to" && n != "root" {
						t.Errorf("%q of %q is outside", filepath.Join(at, n), name)
					}
				}
			}
			if err := os.RemoveAll(top); err != nil {
				t.Fatal(err)
			}
		}
	})
}

type entry struct {
	name string
	data []byte
}

// pack returns an archive with a manifest and files.
func pack(t testing.TB, m Manifest, files ...entry) []byte {
	text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	packed, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(packed)
	for _, e := range append([]entry{{manifestName, text}}, files...) {
		if archive.WriteHeader(&tar.Header{Name: e.name, Mode: 0o600, Size: int64(len(e.data))}) != nil {
			continue // a name that tar cannot have
		}
		_, _ = archive.Write(e.data) // a directory has no data
	}
	archive.Close() // a refused header makes it fail
	packed.Close()
	return out.Bytes()
}
