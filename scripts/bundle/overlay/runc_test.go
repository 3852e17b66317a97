package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWriteRunc: the sources are there also where nothing has downloaded the module before, as on a machine that builds for the first time.
func TestWriteRunc(t *testing.T) {
	module, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	download := exec.Command("go", "mod", "download", runcModule)
	download.Dir = module
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw") // or the directory cannot be removed
	out := t.TempDir()
	if err := WriteRunc(module, out); err != nil {
		t.Fatal(err)
	}
	for _, c := range runcChanges {
		if data, err := os.ReadFile(filepath.Join(out, "runc", c.file)); err != nil || !strings.Contains(string(data), c.new) {
			t.Errorf("%s is not changed: %v", c.file, err)
		}
	}
}

// TestChange: a text that upstream has changed or has more than once is an error that names the file.
func TestChange(t *testing.T) {
	c := change{"a/b.go", "old()\n", "new()\n"}
	if got, err := c.apply([]byte("x\nold()\ny\n")); err != nil || string(got) != "x\nnew()\ny\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"x\n", "old()\nold()\n"} {
		if _, err := c.apply([]byte(text)); err == nil || !strings.Contains(err.Error(), "a/b.go") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
