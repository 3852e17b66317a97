package payload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInstalled damages a payload that lies unpacked.
func TestInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(dir string) error
		want   string // in the error; "" for none
	}{
		"whole": {func(string) error { return nil }, ""},
		"touched": {func(dir string) error {
			return os.Chtimes(filepath.Join(dir, "runc"), time.Unix(1, 0), time.Unix(1, 0))
		}, ""},
		"a file gone":     {func(dir string) error { return os.Remove(filepath.Join(dir, "runc")) }, "runc: no such file"},
		"cut short":       {func(dir string) error { return os.Truncate(filepath.Join(dir, "runc"), 1) }, "runc has 1 bytes"},
		"not executable":  {func(dir string) error { return os.Chmod(filepath.Join(dir, "runc"), 0o644) }, "mode -rw-r--r--"},
		"no list":         {func(dir string) error { return os.Remove(filepath.Join(dir, listName)) }, "no such file"},
		"of another list": {func(dir string) error { return os.WriteFile(filepath.Join(dir, listName), []byte("{}"), 0o644) }, "is of another build"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "runc"), []byte("program"), 0o755); err != nil {
				t.Fatal(err)
			}
			list, err := json.Marshal(map[string]unpackedFile{"runc": {Size: 7, Mode: 0o755}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, listName), list, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(list)
			err = checkInstalled(dir, hex.EncodeToString(sum[:]))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
