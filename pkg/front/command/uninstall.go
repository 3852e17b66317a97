package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front"
	"github.com/coracle-dev/coracle/pkg/machine/install"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

const (
	uninstallLong = `Take an installed coracle off this machine: stop it and its pods, remove all that it made, as coracle reset does, with
all data of the cluster that is kept here, and then what coracle install has put onto the machine.

It goes by coracle's own notes and touches nothing else. A file that was changed since is left, and named. The link
coracle-uninstall does the same.

It needs root, and asks first unless --yes is given.`
	uninstallExample = `
# In a script
coracle-uninstall --yes

# Only the service and the executable; the cluster's data stays
coracle uninstall --keep-data`
	killallLong = `Stop the installed coracle and all its pods, and take away its mounts, interfaces, network namespaces, nft tables, routes
and cgroups: what a reboot does, without one. The data stays, and the service comes up again with the next boot, or when
it is started. The link coracle-killall does the same.`
	killallExample = `
# Stop everything; then begin again
coracle killall
systemctl start coracle`
)

func uninstallCommand() *cobra.Command {
	c := &cobra.Command{Use: "uninstall", Short: "Take an installed coracle off this machine", Long: uninstallLong, Example: uninstallExample, Args: NoArgs}
	c.Flags().SortFlags = false
	name := c.Flags().String("name", "", "Which one, where several services are installed")
	keep := c.Flags().Bool("keep-data", false, "Leave what the cluster and the node have on the disk")
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, err := theInstalled(c.CommandPath(), *name)
		if err != nil {
			return err
		}
		in, err := installer()
		if err != nil {
			return err
		}
		return uninstall(in, r, *keep, *yes)
	}
	return c
}

// uninstall takes an installation off this machine.
func uninstall(in *install.Installer, r install.Record, keep, yes bool) error {
	if !yes {
		if err := confirmUninstall(r, keep); err != nil {
			return err
		}
	}
	ctx, done := interruptible()
	defer done()
	left, err := in.Uninstall(ctx, r, keep)
	if err != nil {
		return fmt.Errorf("%w\nnot everything could be removed; once the reasons above are gone, run coracle uninstall again", err)
	}
	for _, path := range left {
		fmt.Printf("%s is left, because it was changed after the installation.\n", path)
	}
	switch {
	case keep:
		fmt.Printf("%s is off this machine; its data is still in %s.\n", r.Service, r.Dirs.Data)
	default:
		fmt.Printf("%s is off this machine, and nothing that it made is left.\n", r.Service)
	}
	return nil
}

func killallCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "killall", Short: "Stop an installed coracle with all its pods, and take away its network", Long: killallLong, Example: killallExample, Args: NoArgs,
	}
	name := c.Flags().String("name", "", "Which one, where several services are installed")
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, err := theInstalled(c.CommandPath(), *name)
		if err != nil {
			return err
		}
		in, err := installer()
		if err != nil {
			return err
		}
		return killall(in, r)
	}
	return c
}

// killall stops an installed coracle with all its pods.
func killall(in *install.Installer, r install.Record) error {
	ctx, done := interruptible()
	defer done()
	if err := in.Stop(ctx, r); err != nil {
		return err
	}
	text := fmt.Sprintf("%s and its pods are stopped, and its network is gone; its data stays.", r.Service)
	if in.Manager != nil {
		text += " To start it again: " + startCommand(in.Manager.Name(), r.Service)
	}
	fmt.Println(text)
	return nil
}

// errNotInstalled reports that no coracle is installed as a service.
var errNotInstalled = errors.New("coracle is not installed as a service here: coracle reset removes what one made that was run by hand")

// theInstalled finds the installation that a command changes. Without a name there must be one only.
func theInstalled(command, name string) (install.Record, error) {
	if err := rootOnly(command); err != nil {
		return install.Record{}, err
	}
	r, ok, err := installed(install.Store{}, name)
	switch {
	case err != nil || ok:
		return r, err
	case name != "":
		return r, exitcode.Usagef("no service %s is installed", name)
	}
	return r, errNotInstalled
}

// confirmUninstall asks for confirmation.
func confirmUninstall(r install.Record, keep bool) error {
	what := "all data of the cluster in " + r.Dirs.Data + " will be lost"
	if volumes := localpath.Summary(r.Dirs.LocalVolumes()); volumes != "" {
		what += ", and that of its pods (" + volumes + "), unless --keep-data is given"
	}
	if keep {
		what = "the data in " + r.Dirs.Data + " stays"
	}
	return Confirm(os.Stdin, os.Stderr, fmt.Sprintf("This stops %s with all its pods and removes it; %s.\n", r.Service, what))
}

// discardInstalled removes what an installed coracle made when it ran.
func discardInstalled(ctx context.Context, r install.Record, data bool) error {
	if !left(r) {
		return nil // it has never run
	}
	core, err := filepath.EvalSymlinks(r.Dirs.Tool("coracle-core"))
	if errors.Is(err, os.ErrNotExist) { // the first start did not come to unpacking; a user's cache would be left
		err = payload.Unpack(ctx, r.Dirs, func(int64, int64) {})
		core = r.Dirs.Tool("coracle-core")
	}
	if err != nil {
		return fmt.Errorf("looking for the program that removes things: %w", err)
	}
	var args []string
	if !data {
		args = []string{"--keep-data"}
	}
	// reset takes other paths from the configuration of the last start, or else of the next one.
	env := append(os.Environ(), "CORACLE_KUBELET_ROOT_DIR="+r.Dirs.Kubelet)
	if r.Kubeconfig != "" {
		env = append(env, "CORACLE_WRITE_KUBECONFIG="+r.Kubeconfig)
	}
	if err := front.Reset(ctx, core, r.Dirs, env, nil, args...); err != nil {
		return fmt.Errorf("removing what %s made: %w", r.Service, err)
	}
	return nil
}

// left reports whether the service has run: it makes its directories.
func left(r install.Record) bool {
	for _, dir := range []string{r.Dirs.Data, r.Dirs.Run} {
		if _, err := os.Stat(dir); err == nil {
			return true
		}
	}
	return false
}
