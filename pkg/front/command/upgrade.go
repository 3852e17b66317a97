package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/localcluster"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

const (
	upgradeLong = `Replace the installed coracle by another version, and take it back if that does not work.

The new version is a file, or a version to download. Pods stay up. The new version has to become ready within --timeout
and stay so for --hold; else the installed one is put back and started again, with the cluster's data as it was if this
server alone has it, and the exit code is 6. That happens too if this command, or the machine, dies meanwhile.`
	upgradeExample = `
# To a file
coracle upgrade ./coracle

# To the newest stable version, or to a certain one
coracle upgrade --channel stable
coracle upgrade v1.37.2+coracle.1

# What would happen?
coracle upgrade --dry-run ./coracle`
	rollbackLong = `Go back to the version that was installed before the last upgrade. It is tried as in coracle upgrade.

The cluster's data stays as it is, unless --datastore is given: then everything that was written since the upgrade is lost.`
	rollbackExample = `
# Back to the version before
coracle rollback`
)

// upgradeFlags are what upgrade and rollback have in common.
type upgradeFlags struct {
	options  upgrade.Options
	service  string
	unsigned bool
}

func (u *upgradeFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.DurationVar(&u.options.Timeout, "timeout", 2*time.Minute, "How long the other version may take to be ready")
	flags.DurationVar(&u.options.Hold, "hold", 10*time.Second, "How long it has to stay ready")
	flags.StringVar(&u.service, "name", "", "Service that is meant, where several are installed")
	flags.BoolVar(&u.options.DryRun, "dry-run", false, "Check everything, and change nothing")
}

// run upgrades and reports the result.
func (u *upgradeFlags) run(ctx context.Context, t upgrade.Target, m initsystem.Manager) error {
	if u.options.Timeout <= 0 || u.options.Hold < 0 {
		return exitcode.Usagef("--timeout must be more than zero, and --hold not less")
	}
	began := time.Now()
	u.options.Say = func(line string) { fmt.Fprintln(os.Stderr, line) }
	s, err := upgrade.Upgrade(ctx, t, m, u.options)
	switch {
	case errors.Is(err, upgrade.ErrSame):
		fmt.Fprintf(os.Stderr, "%s is installed already: nothing was changed\n", s.To.Version)
		return nil
	case err != nil:
		return err
	case u.options.DryRun:
		fmt.Fprintf(os.Stderr, "%s can be upgraded from %s to %s; nothing was changed\n", t.Service, s.From.Version, s.To.Version)
	default:
		fmt.Fprintf(os.Stderr, "%s is %s now, after %.1f s; coracle rollback goes back to %s\n", t.Service, s.To.Version,
			time.Since(began).Seconds(), s.From.Version)
	}
	return nil
}

func upgradeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "upgrade [flags] [FILE|VERSION]", Short: "Replace the installed version by another, and take it back if it does not work",
		Long: upgradeLong, Example: upgradeExample, Args: cobra.MaximumNArgs(1),
	}
	var u upgradeFlags
	var from release.Source
	flags := c.Flags()
	flags.StringVar(&from.Channel, "channel", "", "Download the version that this channel stands at (default "+release.DefaultChannel+")")
	flags.StringVar(&from.Mirror, "mirror", "", "Download from this URL or directory (default $INSTALL_CORACLE_MIRROR or "+release.DefaultMirror+")")
	key := flags.String("key", "", "File with the public key that releases are signed with, if it is not the one in this file (default $INSTALL_CORACLE_KEY)")
	flags.BoolVar(&u.unsigned, "insecure-unsigned", false, "Accept a FILE without signature, such as one that you have built, and a channel without")
	flags.BoolVar(&u.options.Downgrade, "allow-downgrade", false, "Accept a version that is older than the installed one")
	u.add(c)
	_, _ = c.MarkFlagFilename("mirror"), c.MarkFlagFilename("key")
	_ = c.RegisterFlagCompletionFunc("channel", cobra.FixedCompletions([]string{"stable", "latest"}, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(_ *cobra.Command, what []string) error {
		from.Mirror = cmp.Or(from.Mirror, os.Getenv("INSTALL_CORACLE_MIRROR"))
		return u.upgrade(what, from, cmp.Or(*key, os.Getenv("INSTALL_CORACLE_KEY")))
	}
	return c
}

// upgrade replaces the installed version by a file, a version or the newest one of a channel.
func (u *upgradeFlags) upgrade(what []string, from release.Source, key string) error {
	if len(what) == 0 && from.Channel == "" && from.Mirror == "" {
		return exitcode.Usagef("coracle upgrade needs a file, a version, or --channel; see 'coracle upgrade --help'")
	}
	t, m, err := findTarget("coracle upgrade", u.service)
	if err != nil {
		return err
	}
	if key != "" {
		pem, err := os.ReadFile(key)
		if err != nil {
			return fmt.Errorf("reading the release key: %w", err)
		}
		from.Key = string(pem)
	}
	ctx, done := interruptible()
	defer done()
	forget, err := u.obtain(ctx, what, from, t.Binary)
	defer forget()
	if err != nil || u.options.File == "" {
		return err
	}
	return u.run(ctx, t, m)
}

// obtain sets the file to upgrade to: a local one, or a download beside the installed one whose signature is checked. It sets
// none if the version is installed already. forget removes the download.
func (u *upgradeFlags) obtain(ctx context.Context, what []string, from release.Source, binary string) (forget func(), err error) {
	forget = func() {}
	if len(what) > 0 {
		if _, err := os.Stat(what[0]); err == nil || strings.Contains(what[0], "/") {
			return forget, u.local(what[0], from.Key)
		}
		if !strings.HasPrefix(what[0], "v") {
			return forget, exitcode.Usagef("%q is neither a file nor a version, which look like v1.37.1+coracle.1", what[0])
		}
		from.Version = what[0]
	}
	from.Unsigned, from.Say = u.unsigned, func(line string) { fmt.Fprintln(os.Stderr, line) }
	if from.Version, err = from.Resolve(ctx); err != nil {
		return forget, err
	}
	if self, err := os.Executable(); err == nil && self == binary && from.Version == version.Version {
		fmt.Fprintf(os.Stderr, "%s is installed already: nothing was changed\n", from.Version)
		return forget, nil
	}
	temp, err := os.MkdirTemp(filepath.Dir(binary), ".coracle-download-")
	if err != nil {
		return forget, fmt.Errorf("making a place for the download: %w", err)
	}
	forget = func() { os.RemoveAll(temp) }
	u.options.File = filepath.Join(temp, "coracle")
	fmt.Fprintf(os.Stderr, "downloading %s\n", from.Version)
	u.options.Name, err = from.Fetch(ctx, u.options.File, nil)
	return forget, untrusted(err)
}

// local takes a local file. What is verified, by the checksum and signature beside it, is the copy that is installed.
func (u *upgradeFlags) local(file, key string) error {
	u.options.File = file
	if _, err := os.Stat(file); err != nil {
		return exitcode.Usagef("%w", err)
	}
	u.options.Verify = func(copied string) error {
		evidence, err := release.VerifyLocal(copied, file, filepath.Dir(file), runtime.GOARCH, key)
		switch {
		case err != nil:
			return untrusted(err)
		case evidence.Signature:
			fmt.Fprintln(os.Stderr, "the signature beside it is right")
		case !u.unsigned:
			return exitcode.With(exitcode.Untrusted, fmt.Errorf("%s is unsigned: put %s and %s of its release beside it, or accept a file that you have built with --insecure-unsigned; nothing was changed",
				file, release.SumsFile, release.SignatureFile))
		case evidence.Checksum:
			fmt.Fprintln(os.Stderr, "the checksum beside it is right; there is no signature")
		}
		return nil
	}
	return nil
}

// untrusted gives errors of verification their class.
func untrusted(err error) error {
	var bad release.Untrusted
	if errors.As(err, &bad) {
		return exitcode.With(exitcode.Untrusted, err)
	}
	return err
}

func rollbackCommand() *cobra.Command {
	c := &cobra.Command{Use: "rollback", Short: "Go back to the version before the last upgrade", Long: rollbackLong, Example: rollbackExample, Args: NoArgs}
	var u upgradeFlags
	c.Flags().BoolVar(&u.options.OldData, "datastore", false, "Put the cluster's data back too, as it was before the upgrade")
	u.add(c)
	c.RunE = func(*cobra.Command, []string) error { return u.rollback() }
	return c
}

// rollback goes back to the version before.
func (u *upgradeFlags) rollback() error {
	t, m, err := findTarget("coracle rollback", u.service)
	if err != nil {
		return err
	}
	ctx, done := interruptible()
	defer done()
	if err := upgrade.Previous(t, &u.options); err != nil {
		return err
	}
	return u.run(ctx, t, m)
}

// internalCommands are hidden: coracle and the services that it installs call them.
func internalCommands() []*cobra.Command {
	step := func(name string, arguments int, run func(args []string) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Hidden: true, Args: cobra.ExactArgs(arguments), RunE: func(_ *cobra.Command, args []string) error { return run(args) },
		}
	}
	return []*cobra.Command{
		step(upgrade.GuardCommand, 1, func(args []string) error {
			return exitcode.With(exitcode.Failed, upgrade.Guard(args[0])) // any code that does not keep systemd from starting it again
		}),
		step(upgrade.UnpackCommand, 1, func(args []string) error { return upgrade.UnpackAhead(args[0]) }),
		step(upgrade.WatchCommand, 1, func(args []string) error {
			m, err := initsystem.Detect()
			if err != nil {
				return err
			}
			ctx, done := interruptible()
			defer done()
			return upgrade.Watch(ctx, args[0], m)
		}),
		step(holderCommand, 2, func(args []string) error { return localcluster.RunHolder(localcluster.Store{Dir: args[0]}, args[1]) }),
	}
}
