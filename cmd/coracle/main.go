// Command coracle is the front: the executable that users run. Its commands are in pkg/front/command. It links no Kubernetes;
// commands that need it are run by coracle-core out of the payload.
package main

import (
	"os"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
	"github.com/coracle-dev/coracle/pkg/machine/host"
)

func main() {
	if code, ok := nshost.Main(); ok { // on or for a node of a local cluster
		os.Exit(code)
	}
	if os.Getpid() == 1 && len(os.Args) > 1 && slices.Contains(command.MakesCgroups, os.Args[1]) {
		if err := host.UnshareCgroup(os.Args); err != nil {
			exitcode.Print(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(command.Main(os.Args))
}
