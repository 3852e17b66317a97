package main

import (
	"fmt"
	"os"
)

// crictl reports that this build has no crictl. A full build (scripts/build) replaces this file by one that runs the
// CRI tools' client: it is a command upstream, and a plain `go build` cannot import a command.
func crictl([]string) int {
	fmt.Fprintln(os.Stderr, "coracle: this build has no crictl; build with `make build`")
	return 2
}
