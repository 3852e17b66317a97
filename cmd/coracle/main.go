// Command coracle is the front: the one file people run. It resolves the configuration, unpacks its payload,
// supervises the two halves of Kubernetes and is their init in a container. It links no Kubernetes; commands
// that need it are run by coracle-core out of the payload.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/vhost"
)

func main() {
	if code, ok := vhost.Main(); ok { // on or for a node of a local cluster
		os.Exit(code)
	}
	os.Exit(run(hideTokens(os.Args)))
}

// run does what the arguments ask for and returns the exit code. Every error becomes lines for people here.
func run(argv []string) int {
	err := dispatch(filepath.Base(argv[0]), argv[1:])
	var usage usageError
	switch {
	case err == nil, errors.Is(err, errShown):
		return 0
	case errors.As(err, &usage):
		complain(err)
		return 2
	}
	complain(err)
	return 1
}

// complain prints each line of err as one of ours.
func complain(err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(os.Stderr, "coracle: %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// usageError is a mistake in how a command was called, as against one in what it did.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
