package front

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
)

func allReady(all []state.Child) bool {
	return !slices.ContainsFunc(all, func(c state.Child) bool { return c.State != supervise.Ready })
}

// summary describes the states of the child processes in one line, for systemctl status.
func summary(all []state.Child) string {
	if allReady(all) {
		return "ready"
	}
	var parts []string
	for _, c := range all {
		text := c.Name + " " + c.State
		switch {
		case c.State == supervise.Backoff:
			text += ": " + c.LastExit
		case c.State == supervise.Starting && c.Status != "":
			text += ": " + c.Status
		case c.State == supervise.Starting && c.LastExit != "":
			text += " again, it " + c.LastExit
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// welcomeText describes how to use a cluster, or a node, that has become ready.
func welcomeText(cfg config.Config, took time.Duration) string {
	if cfg.Role == config.Agent {
		return fmt.Sprintf(`
This node is ready after %.1f s, as %s in the cluster of %s.

  How it is doing        coracle status
  The log                %s

Ctrl-C stops coracle; pods go on running unless --drain-on-stop is given.
`, took.Seconds(), cfg.Node.Name, strings.Join(cfg.Join.Servers, ", "), cfg.Dirs.LogFile())
	}
	flag := ""
	if cfg.Dirs.Run != paths.Default().Run {
		flag = "CORACLE_RUN_DIR=" + cfg.Dirs.Run + " "
	}
	end := "pods go on running unless --drain-on-stop is given"
	if cfg.Ephemeral.On {
		end = "the cluster is removed then, with everything in it"
	}
	return fmt.Sprintf(`
Kubernetes is ready after %.1f s.

  In another terminal    %scoracle kubectl get nodes
  With your own kubectl  export KUBECONFIG=%s
  How it is doing        %scoracle status
  The log                %s

Ctrl-C stops coracle; %s.
`, took.Seconds(), flag, cfg.API.KubeconfigPath, flag, cfg.Dirs.LogFile(), end)
}

// inUse adds to the error of a lock that another coracle holds what to do about it.
func inUse(err error) error {
	return exitcode.With(exitcode.Unfit, fmt.Errorf("%w: stop that one first, or choose another --data-dir and --run-dir", err))
}
