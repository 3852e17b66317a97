package localcluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestArtifactsStay: nobody's link leads what is written out of the directory.
func TestArtifactsStay(t *testing.T) {
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	a := Artifacts{Dir: filepath.Join(top, "a", "out"), UID: os.Geteuid(), GID: os.Getegid()}
	if err := a.write("nodes/server-1/coracle.log", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := a.write("nodes/server-1/coracle.log", []byte("te")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(a.Dir, "nodes", "server-1", "coracle.log")); err != nil || string(got) != "te" {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"file", "dir"} {
		if err := os.Symlink(filepath.Join(outside, "x"), filepath.Join(a.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.write("file", nil); err == nil {
		t.Error("a file was written through a link")
	}
	if err := a.write("dir/file", nil); err == nil {
		t.Error("a file was written below a link")
	}
	if files, _ := os.ReadDir(outside); len(files) > 0 {
		t.Errorf("%v is outside", files)
	}
}
