package command

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/test/mirror"
)

// TestLocalFile: a file without a signature is refused, unless the user says that it may be; one with a wrong signature always.
func TestLocalFile(t *testing.T) {
	m := mirror.New(t)
	for _, tt := range []struct {
		name     string
		remove   string // file beside it
		unsigned bool
		text     string
		want     string // "" is no error
	}{
		{"signed", "", false, "a program", ""},
		{"no signature", release.SignatureFile, false, "a program", "--insecure-unsigned"},
		{"nothing", release.SumsFile, false, "a program", "--insecure-unsigned"},
		{"nothing, and meant", release.SumsFile, true, "a program", ""},
		{"no signature, and meant", release.SignatureFile, true, "a program", ""},
		{"no signature, and changed", release.SignatureFile, true, "another", "its SHA-256 is"},
		{"changed", "", true, "another", "its SHA-256 is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := m.Empty(t).Release(t, "v1", map[string]string{release.Asset(runtime.GOARCH): "a program"})
			if tt.remove != "" {
				_ = os.Remove(filepath.Join(dir, tt.remove))
			}
			file, copied := filepath.Join(dir, "mine"), filepath.Join(t.TempDir(), "copied")
			for _, path := range []string{file, copied} {
				if err := os.WriteFile(path, []byte(tt.text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			u := upgradeFlags{unsigned: tt.unsigned}
			if err := u.local(file, m.Key); err != nil {
				t.Fatal(err)
			}
			err := u.options.Verify(copied)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || exitcode.ClassOf(err) != exitcode.Untrusted) {
				t.Errorf("got %v", err)
			}
		})
	}
}
