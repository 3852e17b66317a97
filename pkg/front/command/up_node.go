package command

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// upNode stops or starts a node of a local cluster.
func upNode(args []string) error {
	flags := pflag.NewFlagSet("up node", pflag.ContinueOnError)
	dir := clustersFlag(flags)
	names, err := parseNames(flags, args, 3)
	if err != nil {
		return err
	}
	s := localcluster.Store{Dir: *dir}
	const usage = "say what to do with which node: coracle up node stop|start NAME NODE"
	if len(names) != 3 {
		return exitcode.Usagef(usage)
	}
	switch names[0] {
	case "stop":
		return s.StopNode(names[1], names[2])
	case "start":
		return s.StartNode(names[1], names[2])
	}
	return exitcode.Usagef(usage)
}

// upExec becomes a command on a node of a local cluster.
func upExec(args []string) error {
	flags := pflag.NewFlagSet("up exec", pflag.ContinueOnError)
	flags.SetInterspersed(false)
	dir := clustersFlag(flags)
	names, err := parseNames(flags, args, len(args))
	if err != nil {
		return err
	}
	if len(names) < 2 {
		return exitcode.Usagef("say on which node to run what: coracle up exec NAME NODE [COMMAND...]")
	}
	if err := needRoot("coracle up exec"); err != nil {
		return err
	}
	command := names[2:]
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		command = []string{"sh"}
	}
	cmd, err := localcluster.Store{Dir: *dir}.Command(names[0], names[1], command[0], command[1:]...)
	if err != nil {
		return err
	}
	if err := syscall.Exec(cmd.Path, cmd.Args, append(cmd.Env, "TERM="+os.Getenv("TERM"))); err != nil {
		return fmt.Errorf("going onto the node: %w", err)
	}
	return nil
}
