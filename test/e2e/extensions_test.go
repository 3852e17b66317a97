package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestExtensions plays the examples of docs/extending, from the module test/extensions. Each folder of the module with a test is a subject, with a
// machine of its own, on which nothing may be left, and a row in test/slots/budget.txt.
func TestExtensions(t *testing.T) {
	t.Parallel()
	hosts.Images(t)
	module, err := filepath.Abs("../extensions")
	if err != nil {
		t.Fatal(err)
	}
	tags, err := os.ReadFile("../../scripts/tags")
	if err != nil {
		t.Fatal(err)
	}
	programs, tools := t.TempDir(), t.TempDir()
	settings := strings.TrimSpace(string(tags))
	for _, what := range [][]string{
		// The same settings as the product's, so that client-go is not compiled again; lint has examined all of it.
		{"test", "-vet=off", "-trimpath", "-tags", settings, "-ldflags=-s -w", "-c", "-o", programs + "/", "./..."},
		{"build", "-trimpath", "-tags", settings, "-ldflags=-s -w", "-o", tools + "/", "tool"},
	} {
		build := exec.CommandContext(t.Context(), "go", what...)
		build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("compiling test/extensions: %v: %s", err, out)
		}
	}
	csi := buildCSI(t)
	files, err := filepath.Glob(filepath.Join(programs, "*.test"))
	if err != nil || len(files) == 0 {
		t.Fatalf("test/extensions has no tests (%v)", err)
	}
	for _, file := range files {
		subject := strings.TrimSuffix(filepath.Base(file), ".test")
		t.Run(subject, func(t *testing.T) {
			slots.Take(t)
			l, _ := newLaptop(t)
			if err := errors.Join(os.Rename(file, l.Data("extension.test")), os.CopyFS(l.Data("tools"), os.DirFS(tools))); err != nil {
				t.Fatal(err)
			}
			before := l.state()
			out, err := l.Command("env", "-C", filepath.Join(module, subject), "CORACLE="+hosts.Bin(t), "CORACLE_TEST_IMAGES=/var/lib/coracle/images",
				"CORACLE_TEST_TOOLS=/var/lib/coracle/tools", "CORACLE_TEST_CSI="+csi,
				"/var/lib/coracle/extension.test", "-test.v", "-test.timeout=5m").CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
				t.Errorf("%v, or a test was skipped: %s", err, out)
			}
			l.compare(before)
		})
	}
}
