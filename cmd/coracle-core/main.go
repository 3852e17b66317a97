// Command coracle-core is the multi-call executable with everything that needs Kubernetes, etcd or containerd
// linked in. People do not call it: the front (cmd/coracle) execs it.
package main

import (
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones of CronJobs where the host has no zoneinfo; upstream's commands import it too

	"github.com/coracle-dev/coracle/pkg/addons/helm"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// programs are the names under which this file may be called, as first argument or as its own name, besides the
// commands of root. Each takes the arguments after its name and returns the process' exit code.
var programs = map[string]func(args []string) int{
	"control-plane": controlPlane,
	"node":          nodeHalf,
	"kubectl":       kubectl,
	"ctr":           ctr,
	"crictl":        crictl,

	helm.ChildProgram: helm.RunChild,
}

func main() {
	all := os.Args[1:] // completion of kubectl replaces os.Args
	name, args := filepath.Base(os.Args[0]), all
	if _, ok := programs[name]; !ok && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if run, ok := programs[name]; ok && !isCommand(name, args) {
		os.Exit(run(args))
	}
	os.Exit(exitcode.Exit(os.Stderr, command.Execute(root(all), all)))
}

// isCommand tells coracle's command node from the half of that name, which gets the path of a file.
func isCommand(name string, args []string) bool {
	return name == "node" && (len(args) != 1 || !filepath.IsAbs(args[0]))
}
