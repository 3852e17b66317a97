package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestExtensions plays the examples of docs/extending, from the module test/extensions, on a machine of their own, and checks that nothing is left
// there. Each folder of the module with a test is a subject, with a row in test/slots/budget.txt.
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
	l, _ := newLaptop(t)
	// The same settings as the product's, so that client-go is not compiled again.
	build := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-tags", strings.TrimSpace(string(tags)), "-c", "-o", l.Data("extensions")+"/", "./...")
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if err := os.MkdirAll(l.Data("extensions"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the tests of test/extensions: %v: %s", err, out)
	}
	programs, err := filepath.Glob(l.Data("extensions/*.test"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("test/extensions has no tests (%v)", err)
	}
	before := l.state()
	t.Cleanup(func() { l.compare(before) }) // when the parallel subtests have ended, and before the machine goes
	for _, program := range programs {
		subject := strings.TrimSuffix(filepath.Base(program), ".test")
		t.Run(subject, func(t *testing.T) {
			slots.Take(t)
			out, err := l.Command("env", "-C", filepath.Join(module, subject), "CORACLE="+hosts.Bin(t), "CORACLE_TEST_IMAGES=/var/lib/coracle/images",
				"/var/lib/coracle/extensions/"+filepath.Base(program), "-test.v", "-test.timeout=5m").CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
				t.Errorf("%v, or a test was skipped: %s", err, out)
			}
		})
	}
}
