package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

const (
	installLong = `Install this file on the machine as a service that starts at boot, start it, and wait until the node is Ready.

After the flags comes what the service is to run: server or agent with its arguments. Without that it is an agent if
CORACLE_URL is set, what is installed already if something is, and else a server. The service gets all CORACLE_ variables
that are set, and those of proxies, in a file for root only; tokens among the arguments go there too.

What fails is taken back: afterwards the machine is as it was before. Installing again changes what is different, and
restarts the service only if it has to; another version of this file is an upgrade. Pods run on in all of this.`
	installExample = `
# A server
coracle install

# A server with settings
coracle install -- server --disable=dns --tls-san=cluster.example.org

# An agent
CORACLE_URL=https://10.0.0.1:6443 CORACLE_TOKEN=C1... coracle install`
)

// installFlags are the flags of install.
type installFlags struct {
	name, binDir string
	skipStart    bool
	skipEnable   bool
	wait         time.Duration
}

// installCommand makes coracle a service of this machine.
func installCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "install [flags] -- [server|agent FLAGS OF IT]", Short: "Install coracle as a service of this machine", Long: installLong, Example: installExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f installFlags
	flags := c.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what comes after is the service's
	flags.StringVar(&f.name, "name", "", "For another service besides the first, coracle-NAME; it needs directories and ports of its own")
	flags.StringVar(&f.binDir, "bin-dir", "/usr/local/bin", "Where to put the executable and the links to it")
	flags.BoolVar(&f.skipStart, "skip-start", false, "Do not start the service now")
	flags.BoolVar(&f.skipEnable, "skip-enable", false, "Do not start the service at boot")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "How long the start may take; what takes longer is taken back")
	_ = c.MarkFlagDirname("bin-dir")
	c.RunE = func(c *cobra.Command, command []string) error {
		err := f.install(command)
		var role roleHelp
		if errors.As(err, &role) {
			found, _, _ := c.Root().Find([]string{string(role)})
			return found.Help()
		}
		return err
	}
	return c
}

// roleHelp reports that the arguments of the service ask for the help of its role.
type roleHelp config.Role

func (r roleHelp) Error() string { return pflag.ErrHelp.Error() }

func (f installFlags) install(command []string) error {
	began := time.Now()
	if err := rootOnly("coracle install"); err != nil {
		return err
	}
	if f.wait <= 0 {
		return exitcode.Usagef("--wait is %s: it must be more than zero; to wait for nothing, give --skip-start", f.wait)
	}
	in, err := installer()
	if err != nil {
		return err
	}
	w, err := f.spec(in, command, os.Environ())
	if err != nil {
		return err
	}
	return runInstall(in, w, began)
}

// rootOnly returns an error unless root runs the command.
func rootOnly(command string) error {
	if os.Geteuid() != 0 {
		return exitcode.With(exitcode.Unfit, fmt.Errorf("%s is for root only: sudo %[1]s", command))
	}
	return nil
}

// installer returns the installer for this machine's init system.
func installer() (*install.Installer, error) {
	m, err := initsystem.Detect()
	if err != nil && !errors.Is(err, initsystem.ErrNone) {
		return nil, err
	}
	in := &install.Installer{Manager: m, Discard: discardInstalled, Say: func(line string) { fmt.Fprintln(os.Stderr, line) }}
	if err != nil {
		in.Manager = nil // an interface that is nil itself
	}
	return in, nil
}

// runInstall installs the service and reports the result.
func runInstall(in *install.Installer, w install.Spec, began time.Time) error {
	ctx, done := interruptible()
	defer done()
	wh := where{data: w.Config.Dirs.Data, run: w.Config.Dirs.Run}
	in.Check = func() error { return fit(w.Config) }
	in.Ready = func(ctx context.Context) error {
		return (&waiting{where: wh, wanted: conditions(), out: io.Discard}).run(ctx)
	}
	in.Upgrade = func(ctx context.Context, r install.Record, file string) error {
		return upgradeInstalled(ctx, in.Manager, r, file, w.Wait)
	}
	in.Step = func(ctx context.Context, r install.Record, file string) error {
		return upgrade.Step(ctx, targetOf(r), file)
	}
	result, err := in.Install(ctx, w)
	if err != nil {
		return err
	}
	report{in: in, wanted: w, done: result, where: wh, took: time.Since(began)}.print(ctx)
	return nil
}

// fit returns an error if this machine cannot run the configuration, and prints warnings.
func fit(cfg config.Config) error {
	if lock, err := os.Open(cfg.Dirs.Lock()); err == nil {
		lock.Close()
		held, err := supervise.Lock(cfg.Dirs.Lock())
		var other *supervise.HeldError
		if errors.As(err, &other) {
			return exitcode.With(exitcode.Unfit, fmt.Errorf("%w: stop that one first", err))
		}
		if err == nil {
			held.Close()
		}
	}
	warn := func(err error) { fmt.Fprintln(os.Stderr, "coracle: warning:", err) }
	if err := check.Start(cfg, warn); err != nil {
		return exitcode.With(exitcode.Unfit, err)
	}
	warnOfOthers(cfg, warn)
	return nil
}

// warnOfOthers warns of firewalls, routes and other Kubernetes on this machine that will be in the way of pods.
func warnOfOthers(cfg config.Config, warn func(error)) {
	m := &check.Machine{Config: cfg, Environ: os.Environ()}
	probes, err := check.Only(m.Probes(), []string{"firewall", "routes", "other-kubernetes"})
	if err != nil {
		return
	}
	for _, row := range check.Run(context.Background(), probes, probeLimit()).Rows {
		if row.Result == check.Warn || row.Result == check.Fail {
			warn(fmt.Errorf("%s: %s", row.Finding, row.Fix))
		}
	}
}

// upgradeInstalled upgrades an installed service to another executable.
func upgradeInstalled(ctx context.Context, m initsystem.Manager, r install.Record, file string, timeout time.Duration) error {
	var u upgradeFlags
	u.options.File, u.options.Timeout, u.options.Hold = file, timeout, 10*time.Second
	return u.run(ctx, targetOf(r), m)
}
