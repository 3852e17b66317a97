package gc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Bounds of what the initialization of packages allocates, in bytes. Each process of coracle and each command that needs Kubernetes begins with it.
const (
	mostOfAll     = 17_000_000
	mostOfPackage = 700_000
)

// unwanted are packages that were linked only for tests of upstream, or for commands that coracle has not.
var unwanted = []string{"github.com/asaskevich/govalidator", "helm.sh/helm/v4/pkg/chart/v2/lint/rules", "k8s.io/client-go/dynamic/fake", "k8s.io/client-go/kubernetes/fake"}

var initialized = regexp.MustCompile(`^init (\S+) @.*, (\d+) bytes, \d+ allocs$`)

// trace runs kubectl version under a name with a setting of GODEBUG, and returns its standard error. It takes the executable that the build makes, whose
// modules are changed.
func trace(t *testing.T, name, debug string) []byte {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "..", "build", runtime.GOARCH, "payload", "coracle-core"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs what `make build` makes")
	}
	cmd := exec.Command(program, "kubectl", "version", "--client")
	cmd.Args[0] = name
	cmd.Env = []string{"GODEBUG=" + debug} // and no HOME, as a service of systemd
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	return out.Bytes()
}

// TestCommand: a command collects garbage once before its packages are initialized, to free the memory that it has had mapped, and not again.
func TestCommand(t *testing.T) {
	out := trace(t, "coracle", "gctrace=1")
	if all, forced := bytes.Count(out, []byte("gc ")), bytes.Count(out, []byte("(forced)")); all != 1 || forced != 1 {
		t.Errorf("%d collections, %d of them forced:\n%s", all, forced, out)
	}
}

// TestInitialization: kubectl allocates what all others do, and loads no translations.
func TestInitialization(t *testing.T) {
	packages, sum, collections, before, first := 0, 0, 0, 0, 0
	for line := range bytes.Lines(trace(t, "coracle-core", "inittrace=1,gctrace=1")) {
		if bytes.HasPrefix(line, []byte("gc ")) {
			collections++
		}
		if bytes.HasPrefix(line, []byte("{")) {
			t.Errorf("a package logs while it is initialized: %s", line)
		}
		m := initialized.FindSubmatch(bytes.TrimSpace(line))
		if m == nil {
			continue
		}
		name := string(m[1])
		n, err := strconv.Atoi(string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "cmd/coracle-core/gc") {
			first = packages
		}
		packages, sum, before = packages+1, sum+n, collections
		if n > mostOfPackage {
			t.Errorf("%s allocates %d bytes when it is initialized, more than %d: who imports it, and can it wait until it is used?", name, n, mostOfPackage)
		}
		if slices.Contains(unwanted, name) {
			t.Errorf("%s is linked", name)
		}
	}
	t.Logf("%d packages allocate %d bytes; %d collections meanwhile", packages, sum, before)
	if packages < 1000 {
		t.Errorf("the trace has %d packages only", packages)
	}
	if sum > mostOfAll {
		t.Errorf("%d bytes are allocated, more than %d", sum, mostOfAll)
	}
	if first == 0 || first > 50 {
		t.Errorf("%d packages are initialized before this one; which import delays it?", first)
	}
	if before > 0 {
		t.Errorf("garbage is collected %d times before main", before)
	}
}
