package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
	"github.com/coracle-dev/coracle/pkg/machine/reset"
)

// resetCommand removes everything that coracle made on this machine.
func resetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "reset",
		Long: `Stop coracle and its pods and remove everything that it made on this machine: processes, mounts, network
namespaces, interfaces, nft tables, routes, cgroups, and files with all data of the cluster that is kept here. Kernel
settings that it changed get their old values back, except those of forwarding, on which other programs may rely.

It goes by coracle's own notes and touches nothing else: other containers, networks and rules stay as they are, and so do
the configuration in /etc/coracle and whatever is mounted inside coracle's directories. It works even when processes
hang, after a reboot, and when a part of coracle is damaged. What cannot be removed is said, and another reset tries again.

A service that coracle install has made stays; coracle uninstall removes that too.

It needs root, and asks first unless --yes is given.`,
		Example: `# What would be removed?
coracle reset --dry-run

# In a script
coracle reset --yes`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	dryRun := c.Flags().Bool("dry-run", false, "Only list what would be removed")
	keep := c.Flags().Bool("keep-data", false, "Remove only what a reboot ends or empties; the files with the data stay")
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	output := command.OutputFlag(c, "", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return errors.New("only root can remove what coracle made: use sudo")
		}
		ctx := c.Context()
		i, out := here(), c.OutOrStdout()
		r := reset.Reset{Dirs: i.dirs, Config: i.config, Cache: payload.Cache(), KeepData: *keep, Removed: func(item reset.Item) { fmt.Fprintf(out, "removed %s\n", item) }}
		plan, err := r.Plan(ctx)
		if *dryRun && *output != "" {
			return errors.Join(err, command.PrintAs(out, *output, plan))
		}
		switch {
		case onlyCache(plan) && err == nil:
			fmt.Fprintln(out, "There is nothing of coracle on this machine but what commands like this one unpack.")
			if !*dryRun {
				return r.Run(ctx)
			}
			printPlan(out, plan)
			return nil
		case *dryRun:
			printPlan(out, plan)
			return err
		case !*yes:
			if err := command.Confirm(c.InOrStdin(), out, question(plan, *keep)); err != nil {
				return err
			}
		}
		if err := runReset(ctx, r, out); err != nil {
			return err
		}
		return stillInstalled(out, i.dirs)
	}
	return interruptible(c)
}

func runReset(ctx context.Context, r reset.Reset, out io.Writer) error {
	fmt.Fprintln(out, "stopping coracle and its pods")
	m, _ := initsystem.Detect() // nil where coracle knows none
	if err := (&install.Installer{Manager: m}).Halt(ctx, r.Dirs.Data); err != nil {
		return err
	}
	err := r.Run(ctx)
	switch {
	case errors.Is(err, reset.ErrRunning):
		return err
	case err != nil:
		return fmt.Errorf("%w\nnot everything could be removed; once the reasons above are gone, run coracle reset again", err)
	}
	if r.KeepData {
		fmt.Fprintf(out, "Nothing of coracle runs on this machine any more; its data is still in %s.\n", r.Dirs.Data)
		return nil
	}
	fmt.Fprintln(out, "Nothing of coracle is left on this machine.")
	return nil
}

// stillInstalled prints that an installed service stays, and begins a new cluster at its next start.
func stillInstalled(out io.Writer, dirs paths.Dirs) error {
	r, ok, err := install.Store{}.ByData(dirs.Data)
	if err == nil && ok {
		fmt.Fprintf(out, "The service %s is still installed, and begins anew when it is started: coracle uninstall removes it.\n", r.Service)
	}
	return err
}

// onlyCache reports whether only the cache would be removed, which needs no confirmation.
func onlyCache(plan []reset.Item) bool {
	return !slices.ContainsFunc(plan, func(i reset.Item) bool { return i.Kind != reset.Cache })
}

func printPlan(out io.Writer, plan []reset.Item) {
	for _, line := range reset.Summary(plan) {
		fmt.Fprintln(out, "would remove", line)
	}
}

// count summarises a plan: 3 processes, 11 pods.
func count(plan []reset.Item) string {
	counts := map[string]int{}
	var kinds []string
	for _, item := range plan {
		if counts[item.Kind]++; counts[item.Kind] == 1 {
			kinds = append(kinds, item.Kind)
		}
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d × %s", counts[kind], kind)
	}
	return strings.Join(kinds, ", ")
}

// question describes what the reset removes.
func question(plan []reset.Item, keep bool) string {
	loss := "All data of the cluster on this machine will be lost."
	if i := slices.IndexFunc(plan, func(i reset.Item) bool { return i.Kind == reset.Volumes }); i >= 0 {
		loss = fmt.Sprintf("All data of the cluster on this machine will be lost, and that of its pods: %s. With --keep-data it stays.", plan[i].Detail)
	}
	if keep {
		loss = "The data on this machine stays."
	}
	return fmt.Sprintf("This removes %s.\n%s See --dry-run for a list. ", count(plan), loss)
}
