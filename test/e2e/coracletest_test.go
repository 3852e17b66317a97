package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/test/engine"
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
	build := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-trimpath", "-ldflags=-s -w", "-c", "-o", h.Data(filepath.Base(library)), ".")
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

// libraryAsUser runs tests of the module coracletest as a user who may use Docker: clusters are made in containers, of which nothing is left.
func libraryAsUser(t *testing.T, e *engine.Engine) {
	dir := installLibrary(t, e.Host)
	e.Host.Run("sh", "-c", `mkdir -p /srv/library /srv/home && cp -r "$0"/testdata "$1" "$2" /srv/library && chown 1234 /srv/home && chmod 0755 /srv /srv/library &&
		chmod 0666 /run/docker.sock`, dir, library, hosts.Bin(t))
	out, err := e.Host.Command("env", "-C", "/srv/library", "HOME=/srv/home", "CORACLE=/srv/library/coracle", "CORACLE_TEST_IMAGES=/var/lib/coracle/images",
		"setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "./"+filepath.Base(library),
		"-test.v", "-test.run=^(TestCluster|TestEnds)$/^(is killed|group)$", "-test.parallel=4", "-test.timeout=3m").CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) || !bytes.Contains(out, []byte("--- PASS: TestEnds/is_killed")) {
		t.Errorf("%v, or a test was not tried: %s", err, out)
	}
	if left := e.Docker("ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
	if left := e.Host.Run("find", "/srv/home/.cache/coracletest", "-mindepth", "2"); left != "" {
		t.Errorf("files are left: %s", left)
	}
}
