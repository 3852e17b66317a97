package hosts

import (
	"fmt"
	"os"
	"testing"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// roleEnv names the role in which the harness runs a test binary again, besides those of package nshost.
const roleEnv = "CORACLE_TEST_ROLE"

// Main runs the tests, or one of the roles in which the harness re-executes the test binary.
// A package with hosts has `func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }`.
func Main(m *testing.M) int {
	if code, ok := nshost.Main(); ok {
		return code
	}
	switch os.Getenv(roleEnv) {
	case "":
		if err := removeLeftovers(); err != nil {
			report(err) // for a test to fail on
		}
		defer os.RemoveAll(payloadDir())
		return m.Run()
	case roleDNS:
		return report(serveDNS())
	}
	return 2
}

func report(err error) int {
	fmt.Fprintln(os.Stderr, "test host:", err)
	return 1
}
