// Command coracle is the front: the one file people run. It resolves the configuration, unpacks its payload,
// supervises the two halves of Kubernetes and is their init in a container. It links no Kubernetes; commands
// that need it are run by coracle-core out of the payload.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
	"github.com/coracle-dev/coracle/pkg/machine/host"
)

// makers are the commands that make cgroups.
var makers = []string{"server", "agent", "up", "run"}

func main() {
	if code, ok := nshost.Main(); ok { // on or for a node of a local cluster
		os.Exit(code)
	}
	if os.Getpid() == 1 && len(os.Args) > 1 && slices.Contains(makers, os.Args[1]) {
		if err := host.Enclose(os.Args); err != nil {
			exitcode.To(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(hideTokens(os.Args)))
}

// run does what the arguments ask for and returns the exit code. Every error becomes lines for people here.
func run(argv []string) int {
	err := dispatch(filepath.Base(argv[0]), argv[1:])
	var code exitCode
	var help *helpWanted
	switch {
	case err == nil:
		return 0
	case errors.As(err, &help):
		fmt.Print(help.String())
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	exitcode.To(os.Stderr, err)
	return exitcode.Code(err)
}

// exitCode ends this program with the code of another that it ran. Everything was said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
