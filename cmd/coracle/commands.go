package main

import (
	"fmt"
	"slices"
)

// command is one line of the command table.
type command struct {
	name  string
	group string
	short string
	// run does the command in the front. Nil leaves it to coracle-core.
	run func(args []string) error
}

// Groups of commands, in the order of help.
const (
	groupRun     = "Run a cluster"
	groupUse     = "Use it"
	groupLook    = "Look at it"
	groupManage  = "Manage this machine"
	groupOther   = "Other commands"
	defaultShell = "kubectl"
)

// commands lists every command, in the order of help.
func commands() []command {
	return []command{
		{"server", groupRun, "Run a control plane and a node on this machine", server},
		{"agent", groupRun, "Run a node that joins a server", agent},
		{"wait", groupRun, "Wait until a starting cluster can be used", nil},

		{"kubectl", groupUse, "Kubernetes' own command line", nil},
		{"kubeconfig", groupUse, "Give kubectl and other clients access to the cluster", nil},
		{"crictl", groupUse, "Look into the container runtime through CRI", nil},
		{"ctr", groupUse, "Look into containerd", nil},

		{"status", groupLook, "Show how this machine's part of the cluster is doing", nil},
		{"trace", groupLook, "Show where the time of the last start went", nil},

		{"config", groupManage, "Show the resolved configuration, or check a file", nil},
		{"images", groupManage, "Import and list container images", nil},
		{"reset", groupManage, "Remove everything that coracle made on this machine", nil},

		{"version", groupOther, "Print the versions of coracle and what is in it", nil},
		{"completion", groupOther, "Print a shell's completion script", nil},
	}
}

// linkNames are names of the executable itself that stand for a command, as when kubectl is a link to coracle.
var linkNames = []string{"kubectl", "crictl", "ctr"}

func dispatch(self string, args []string) error {
	if slices.Contains(linkNames, self) {
		return execCore(self, args)
	}
	if len(args) == 0 {
		return usagef("no command given; try coracle server, or coracle help")
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		if c.run == nil {
			return execCore(c.name, args[1:])
		}
		return c.run(args[1:])
	}
	return fmt.Errorf("unknown command %q", args[0])
}
