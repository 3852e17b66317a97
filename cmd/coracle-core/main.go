// Command coracle-core is the multi-call executable with everything that needs Kubernetes, etcd or containerd
// linked in. People do not call it: the front (cmd/coracle) execs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// commands are the names under which this file may be called, as first argument or as its own name.
// Each takes the arguments after its name and returns the process' exit code.
var commands = map[string]func(args []string) int{
	"control-plane": controlPlane,
	"node":          nodeHalf,
	"kubectl":       kubectl,
	"ctr":           ctr,
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, ok := commands[name]; !ok && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	run, ok := commands[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "coracle-core: no command %q; call coracle instead\n", name)
		os.Exit(2)
	}
	os.Exit(run(args))
}
