// Command coracle is the front: the one file people run. It resolves the configuration, unpacks its payload,
// supervises the two halves of Kubernetes and is their init in a container. It links no Kubernetes; commands
// that need it are run by coracle-core out of the payload.
package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/complain"
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
	var usage complain.Usage
	switch {
	case err == nil, errors.Is(err, errShown):
		return 0
	case errors.As(err, &usage):
		complain.To(os.Stderr, err)
		return 2
	}
	complain.To(os.Stderr, err)
	return 1
}
