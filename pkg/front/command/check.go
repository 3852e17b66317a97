package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

const (
	checkLong = `Find out whether this machine can run coracle, before anything is installed: kernel, cgroups, disk, network, clock,
what is left of others. It changes nothing, but that the kernel may load modules that it is asked for.

Give it the role and the flags that coracle is to be started with: they decide which ports and directories are looked at.
Where coracle runs already, its own ports count as free; coracle doctor looks at what runs.

The exit code is 0 if nothing fails, even if something is to be looked at, 3 if something fails, and 2 if the flags are
wrong.`
	checkExample = `
# Before the first coracle server
coracle check

# Before joining
coracle check agent --server https://10.0.0.1:6443

# For programs
coracle check -o json

# Only the disk
coracle check --only disk-latency,disk-space`
)

// probeLimit bounds one check. It says on stderr which checks a slow machine takes long for.
func probeLimit() check.Limit {
	return check.Limit{Answer: 2500 * time.Millisecond, Patience: 2 * time.Minute, Slow: func(p check.Probe) {
		fmt.Fprintf(os.Stderr, "coracle: this machine is slow: still checking %s (%s)\n", p.Name, p.About)
	}}
}

// checkArgs are the arguments of check.
type checkArgs struct {
	role   config.Role
	named  bool // the role was given
	format string
	only   []string
	rest   []string // the role's flags
	help   bool
}

// checkCommand looks at this machine. All flags of the role go to package config, as they were typed.
func checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "check [flags] [server|agent] [FLAGS OF IT]", Short: "Find out whether this machine can run coracle", Long: checkLong, Example: checkExample,
		DisableFlagParsing: true,
		ValidArgs:          []string{"server", "agent"},
	}
	OutputFlag(c, "text", "text", "json")
	c.Flags().StringSlice("only", nil, "Make only these checks, by name")
	c.AddCommand(checkCISCommand())
	c.RunE = func(_ *cobra.Command, args []string) error {
		a, err := parseCheck(args)
		if err != nil {
			return err
		}
		return a.run()
	}
	return c
}

func (a checkArgs) run() error {
	if a.help {
		return pflag.ErrHelp
	}
	m, err := a.machine(os.Environ())
	if err != nil {
		return err
	}
	probes, err := check.Only(m.Probes(), a.only)
	if err != nil {
		return exitcode.With(exitcode.Misuse, err)
	}
	report := check.Run(context.Background(), probes, probeLimit())
	err = Print(os.Stdout, a.format, report, func(w io.Writer) error {
		return report.Text(w, term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "")
	})
	if err != nil {
		return err
	}
	if report.Result == check.Fail {
		return exitcode.Silent(exitcode.Unfit)
	}
	return nil
}

// parseCheck separates check's own flags from the role's.
func parseCheck(args []string) (a checkArgs, err error) {
	a.role, a.format = config.Server, "text"
	if len(args) > 0 && (args[0] == string(config.Server) || args[0] == string(config.Agent)) {
		a.role, a.named, args = config.Role(args[0]), true, args[1:]
	}
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		own := name == "-o" || name == "--output" || name == "--only"
		switch {
		case name == "-h" || name == "--help":
			a.help = true
		case !own:
			a.rest = append(a.rest, args[0])
		case !given && len(args) == 1:
			return a, exitcode.Usagef("flag needs an argument: %s; see 'coracle check --help'", name)
		case !given:
			value, args = args[1], args[1:]
		}
		args = args[1:]
		switch {
		case own && name == "--only":
			a.only = append(a.only, strings.Split(value, ",")...)
		case own:
			a.format = value
		}
	}
	if a.format != "text" && a.format != "json" {
		return a, exitcode.Usagef("--output: %q is neither text nor json", a.format)
	}
	return a, nil
}

// anyServer is a placeholder for a server that is not known yet.
const anyServer = "--server=https://server.invalid:6443"

// machine returns the machine to look at, with the configuration of the given flags, or of the coracle that runs if there are
// none.
func (a checkArgs) machine(environ []string) (*check.Machine, error) {
	cfg, err := config.Resolve(a.role, a.rest, environ)
	if err != nil && a.role == config.Agent { // the server may not be known yet
		var without config.Config
		if without, err = config.Resolve(a.role, append(slices.Clone(a.rest), anyServer, "--token=any"), environ); err == nil {
			cfg = without
			cfg.Join.Server, cfg.Join.Token = "", ""
		}
	}
	if err != nil {
		return nil, exitcode.With(exitcode.Misuse, err)
	}
	running := false
	if front, ok, err := state.Read(cfg.Dirs, state.Front); ok && err == nil && front.Alive() {
		running = true
		if last, err := config.Load(cfg.Dirs.Resolved()); err == nil && !a.named && len(a.rest) == 0 {
			cfg = last
		}
	}
	return &check.Machine{Config: cfg, Running: running, Environ: environ}, nil
}
