// Command coracle-core is the multi-call executable with everything that needs Kubernetes, etcd or containerd
// linked in. The front (cmd/coracle) executes it; users do not call it.
package main

import (
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones of CronJobs where the host has no zoneinfo; upstream's commands import it too

	_ "github.com/coracle-dev/coracle/cmd/coracle-core/gc"   // before nearly everything
	_ "github.com/coracle-dev/coracle/cmd/coracle-core/i18n" // before kubectl's packages
	"github.com/coracle-dev/coracle/pkg/addons/helm"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/network/coredns"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/dataplane"
)

// programs are the names, besides the commands of root, under which this file can be called: as its first argument or as its
// own name. Each takes the arguments after its name and returns the exit code.
var programs = map[string]func(args []string) int{
	"control-plane": controlPlane,
	"node":          nodeProcess,
	resetProgram:    resetStorage,
	"kubectl":       kubectl,
	"ctr":           ctr,
	"crictl":        crictl,

	helm.ChildProgram: helm.RunChild,
	coredns.Program:   coredns.RunChild,
	gateway.Program:   dataplane.RunChild,
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

// isCommand distinguishes the command coracle node from the child process of that name, whose only argument is an absolute path.
func isCommand(name string, args []string) bool {
	return name == "node" && (len(args) != 1 || !filepath.IsAbs(args[0]))
}
