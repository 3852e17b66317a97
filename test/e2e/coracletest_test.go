package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// library is the program of the tests of the module coracletest, as hosts see it.
const library = "/var/lib/coracle/coracletest.test"

// installLibrary compiles the tests of the module coracletest for a host. It returns the module's directory, in which they run.
func installLibrary(t *testing.T, h *hosts.Host) (dir string) {
	t.Helper()
	dir, err := filepath.Abs("../../coracletest")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-c", "-o", h.Data(filepath.Base(library)), ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the tests of coracletest: %v: %s", err, out)
	}
	return dir
}

// TestCoracletest runs the tests of the module coracletest on a machine of their own, and checks that nothing is left there.
func TestCoracletest(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	dir := installLibrary(t, l.Host)
	before := l.state()
	out, err := l.Command("env", "-C", dir, "CORACLE="+hosts.Bin(t), "CORACLE_TEST_IMAGES=/var/lib/coracle/images",
		library, "-test.v", "-test.parallel=4", "-test.timeout=5m").CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
		t.Errorf("%v, or a test was skipped: %s", err, out)
	}
	l.compare(before)
}
