package preflight

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// SystemCalls finds a filter of system calls that pods cannot be started under, as container engines have them. It is
// asked once the capabilities are there, so that a refusal is the filter's.
func SystemCalls(config.Config) error { return mayPivot(unix.PivotRoot("", "")) }

// mayPivot judges by what came of an attempt with directories that cannot exist.
func mayPivot(err error) error {
	if errors.Is(err, unix.EPERM) {
		return trouble("start the container with --security-opt seccomp=unconfined, or --privileged",
			"a filter of system calls forbids pivot_root, which every container of a pod needs")
	}
	return nil
}
