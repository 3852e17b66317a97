package export

import (
	"bytes"
	"path/filepath"
	"testing"
)

// FuzzRead: any stream makes a database that has the same stream, or an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte(magic + "\x01\x03key\x02\x01a\x011\x02\x01b\x00\x00"))
	f.Add([]byte(magic + "\x01\x03key\x01\x04meta\x02\x01b\x00\x00"))
	f.Add([]byte(magic + "\x01\x00\x02\x00\x00\x00"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(dir, "db")
		if Read(bytes.NewReader(data), file) != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, file); err != nil {
			t.Errorf("the database of %q cannot be read: %v", data, err)
		}
		again := filepath.Join(dir, "again")
		if err := Read(bytes.NewReader(out.Bytes()), again); err != nil {
			t.Errorf("%q has become %q: %v", data, out.Bytes(), err)
		}
		for _, path := range []string{file, again} {
			remove(t, path)
		}
	})
}
