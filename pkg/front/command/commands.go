// Package command is the command line of coracle: every command with its flags, help and completion, and what the commands
// do that need neither Kubernetes nor containerd. The others are delegated to coracle-core.
package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front"
)

// command is one line of the command table.
type command struct {
	name  string
	group string
	short string
	// run does the command in the front. Nil leaves it to coracle-core, which also has its help.
	run func(args []string) error
	// long and example are for the help of commands that run here.
	long, example string
}

// Groups of commands, in the order of help.
const (
	groupRun     = "Run a cluster"
	groupUse     = "Use it"
	groupLook    = "Look at it"
	groupCluster = "Manage the cluster"
	groupManage  = "Manage this machine"
	groupOther   = "Other commands"
)

// commands lists every command, in the order of help.
func commands() []command {
	return []command{
		{"server", groupRun, "Run a control plane and a node on this machine", server, serverLong, serverExample},
		{"agent", groupRun, "Run a node that joins a server", agent, agentLong, agentExample},
		{"wait", groupRun, "Wait until a starting cluster can be used", wait, waitLong, waitExample},
		{"run", groupRun, "Run a command with a cluster of its own, which goes when the command ends", runCommand, runLong, runExample},
		{"up", groupRun, "Make a local cluster of several nodes on this machine", up, upLong, upExample},
		{"down", groupRun, "Remove a local cluster", down, downLong, downExample},
		{"snapshot-cluster", groupRun, "Seal a local cluster's state, for others to begin with", snapshotCluster, snapshotLong, snapshotExample},

		{"kubectl", groupUse, "Kubernetes' own command line", nil, "", ""},
		{"kubeconfig", groupUse, "Give kubectl and other clients access to the cluster", nil, "", ""},
		{"crictl", groupUse, "Look into the container runtime through CRI", nil, "", ""},
		{"ctr", groupUse, "Look into containerd", nil, "", ""},

		{"status", groupLook, "Show how this machine's part of the cluster is doing", nil, "", ""},
		{"doctor", groupLook, "Find out what is wrong with a coracle that runs", nil, "", ""},
		{"logs", groupLook, "Print what coracle on this machine has logged", printLogs, logsLong, logsExample},
		{"trace", groupLook, "Show where the time of the last start went", nil, "", ""},
		{"support-bundle", groupLook, "Collect logs, states and facts for a bug report in one file", nil, "", ""},

		{"token", groupCluster, "Make and manage tokens with which machines join the cluster", nil, "", ""},
		{"node", groupCluster, "Drain nodes, and remove them from the cluster", nil, "", ""},
		{"etcd", groupCluster, "Show and look after the etcd that keeps the cluster's data", nil, "", ""},
		{"cluster", groupCluster, "Rescue the cluster when most servers are lost", nil, "", ""},

		{"check", groupManage, "Find out whether this machine can run coracle", checkMachine, checkLong, checkExample},
		{"config", groupManage, "Show the resolved configuration, or check a file", nil, "", ""},
		{"install", groupManage, "Install coracle as a service of this machine", installService, installLong, installExample},
		{"upgrade", groupManage, "Replace the installed version by another, and take it back if it does not work", upgradeTo, upgradeLong, upgradeExample},
		{"rollback", groupManage, "Go back to the version before the last upgrade", rollback, rollbackLong, rollbackExample},
		{"images", groupManage, "Import, list, export and prune container images", nil, "", ""},
		{"killall", groupManage, "Stop an installed coracle with all its pods, and take away its network", killall, killallLong, killallExample},
		{"uninstall", groupManage, "Take an installed coracle off this machine", uninstall, uninstallLong, uninstallExample},
		{"reset", groupManage, "Remove everything that coracle made on this machine", nil, "", ""},

		{"version", groupOther, "Print the versions of coracle and what is in it", printVersion, versionLong, versionExample},
		{"completion", groupOther, "Print a shell's completion script", nil, "", ""},
		{"man", groupOther, "Print a page for man, or write all of them", nil, "", ""},
		{"help", groupOther, "Help about any command", help, "", ""},
	}
}

const (
	serverLong = `Run a control plane and a node on this machine: a complete Kubernetes cluster of one, or, with --server, one more
server of a cluster that exists. Three servers or more go on when one of them is lost.

It needs no flag and no file. Every flag is also a key of the config file and an environment variable:
--node-name is node-name: in /etc/coracle/config.yaml and CORACLE_NODE_NAME. A flag wins over the environment, that
over the file.

The command stays in the foreground. Pods go on running when it ends, and are taken over by its next start.`
	serverExample = `
# A cluster with all the defaults
coracle server

# With a name for clients outside, and without DNS
coracle server --tls-san=cluster.example.org --disable=dns

# One more server for the cluster of 10.0.0.1
coracle server --server https://10.0.0.1:6443 --token-file /root/token

# For IPv4 and IPv6
coracle server --cluster-cidr=10.42.0.0/16,fd00:42::/56 --service-cidr=10.43.0.0/16,fd00:43::/112`
	agentLong = `Run a node of a cluster that servers elsewhere control.

The first start joins: it needs the address of a server and a token, which coracle token create prints on one. Everything
about the cluster comes from there. Later starts need neither, and do not need a server that answers: pods that belong
here are started from what the node knows.`
	agentExample = `
# Join
coracle agent --server https://10.0.0.1:6443 --token-file /root/token

# The same, from the environment
CORACLE_SERVER=https://10.0.0.1:6443 CORACLE_TOKEN=C1... coracle agent

# Again, from then on
coracle agent`
	waitLong = `Wait until a cluster that was started on this machine can be used: the API answers, the node takes pods, names
resolve. It may be called before coracle itself is started. The exit code is 4 if it takes longer than --timeout.`
	waitExample = `
# Start in the background and go on when everything can be used
coracle server & coracle wait

# Only for the API, for half a minute
coracle wait --for=api --timeout=30s

# Only look
coracle wait --timeout=0`
	versionLong    = `Print the versions of coracle and of the parts that are in it.`
	versionExample = `
# All versions, for programs
coracle version -o json

# The licences of everything that is in this file
coracle version --licenses`
)

// MakesCgroups are the commands that make cgroups, by their first argument.
var MakesCgroups = []string{"server", "agent", "up", "run"}

// linkNames are names of the executable itself that stand for a command, as when kubectl is a link to coracle.
var linkNames = []string{"kubectl", "crictl", "ctr"}

// complete is what the shell scripts of coracle completion call.
var complete = []string{"__complete", "__completeNoDesc"}

// server runs a control plane and a node.
func server(args []string) error { return runRole(config.Server, args) }

// agent runs a node of a cluster that servers elsewhere control.
func agent(args []string) error { return runRole(config.Agent, args) }

func runRole(role config.Role, args []string) error {
	err := front.Run(role, args)
	if errors.Is(err, pflag.ErrHelp) {
		return helpRole(role)
	}
	return err
}

func dispatch(self string, args []string) error {
	if slices.Contains(linkNames, self) {
		return execCore(append([]string{self}, args...))
	}
	if command, ok := linkCommands()[self]; ok {
		return command(args)
	}
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
		return help(nil)
	}
	if args[0] == "--version" {
		return printVersion(nil)
	}
	if slices.Contains(complete, args[0]) {
		return execCore(args)
	}
	if slices.Contains(upgradeSteps, args[0]) {
		return upgradeStep(args[0], args[1:])
	}
	if args[0] == keeperCommand {
		return keep(args[1:])
	}
	for _, c := range commands() {
		switch {
		case c.name != args[0]:
		case c.run == nil:
			return execCore(args)
		default:
			return c.run(args[1:])
		}
	}
	return unknown(args[0])
}

// unknown is the error of a command that does not exist, with those that may have been meant.
func unknown(name string) error {
	text := fmt.Sprintf("unknown command %q for \"coracle\"", name)
	var similar []string
	for _, c := range commands() {
		if config.Distance(name, c.name) <= 2 || strings.HasPrefix(c.name, name) {
			similar = append(similar, "\t"+c.name)
		}
	}
	if similar != nil {
		return exitcode.Usagef("%s\nDid you mean this?\n%s", text, strings.Join(similar, "\n"))
	}
	return exitcode.Usagef("%s\nRun 'coracle help' for all commands.", text)
}

// Main does what the arguments ask for and returns the exit code.
func Main(argv []string) int {
	argv = hideTokens(argv)
	err := dispatch(filepath.Base(argv[0]), argv[1:])
	var help *helpWanted
	if errors.As(err, &help) {
		fmt.Print(help.String())
		return 0
	}
	return exitcode.Exit(os.Stderr, err)
}
