package hosts

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// roleEnv is the environment variable with the role in which this package runs the test binary again. Package nshost has
// roles of its own.
const roleEnv = "CORACLE_TEST_ROLE"

// Main runs the tests, or the role for which the test binary was run again.
// A package with hosts has `func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }`.
func Main(m *testing.M) int {
	if code, ok := nshost.Main(); ok {
		return code
	}
	switch os.Getenv(roleEnv) {
	case "":
		if err := errors.Join(removeLeftovers(), setMachineSysctls()); err != nil {
			report(err) // the tests that it disturbs will fail
		}
		defer os.RemoveAll(payloadDir())
		failKubectl()
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
