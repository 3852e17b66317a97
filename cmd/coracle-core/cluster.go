package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/controlplane"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// clusterCommand holds the commands that concern the whole cluster.
func clusterCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "cluster",
	}
	return command.Group(c, resetQuorumCommand())
}

func resetQuorumCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "reset-quorum",
		Short: "Go on with this server alone after most servers are lost for good",
		Long: `Go on with this server alone, with all data that it has, after most servers are lost for good.

More than half of the servers must run for the cluster to write anything. If that many are gone and will not come back,
run this on the server that is left; of several, on the one with the highest entry in coracle etcd status. A copy of
its data is kept below the data directory. Coracle may run or not. The command asks the other servers first, and
refuses while more than half of all agree with each other.

The other servers, should they come back, and new ones, join this one by themselves. What they have written after they
lost contact with this one is lost.`,
		Example: `# Two of three servers have burnt
coracle cluster reset-quorum`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	force := c.Flags().Bool("force", false, "Do it though most servers agree with each other; the others lose what they know better")
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	c.RunE = func(c *cobra.Command, _ []string) error {
		i := here()
		if err := i.mayReset(c.Context(), *force); err != nil {
			return err
		}
		if !*yes {
			if err := command.Confirm(c.InOrStdin(), c.OutOrStdout(), "The cluster goes on with this server's data; what other servers know better is lost. "); err != nil {
				return err
			}
		}
		return i.resetQuorum(c.Context(), c.OutOrStdout())
	}
	return interruptible(c)
}

// electionPatience is how long a majority may need to answer: while it elects a leader, or is busy, no server does.
const electionPatience = 15 * time.Second

// mayReset returns an error if this server has no data, or if force is false and it, or another server that is known here, is one of a majority.
func (i installation) mayReset(ctx context.Context, force bool) error {
	if err := i.ownEtcd(); err != nil {
		return err
	}
	if found, _ := filepath.Glob(filepath.Join(i.dirs.Etcd(), "member", "wal", "*.wal")); len(found) == 0 {
		return fmt.Errorf("there is no data of etcd in %s: run this on a server that has some", i.dirs.Etcd())
	}
	if force {
		return nil
	}
	if m, err := i.members(); err == nil { // else etcd is stopped or waits for the other members
		asking, cancel := context.WithTimeout(ctx, etcdTimeout)
		status, err := m.Status(asking)
		cancel()
		switch {
		case err != nil:
		case len(status.Members) == 1:
			return errors.New("this server is etcd's only member: there is nothing to reset")
		case status.Quorum:
			return fmt.Errorf("more than half of the %d servers run and agree with each other: there is nothing to reset "+
				"(a single one is removed with coracle etcd remove; --force resets nevertheless)", len(status.Members))
		}
	}
	cfg := i.config
	cfg.Dirs = i.dirs
	if _, err := join.LoadMemory(i.dirs.ServerCluster()); err != nil { // it names the servers to ask
		return fmt.Errorf("which other servers there are is not known (--force resets nevertheless): %w", err)
	}
	others := controlplane.Others(cfg)
	if len(others.Servers()) == 0 {
		if others.Known() {
			return errors.New("this server has joined others, and which is not known any more (--force resets nevertheless)")
		}
		return nil
	}
	list, err := others.Members(ctx) // a server answers only if more than half of the members agree
	for deadline := time.Now().Add(electionPatience); err != nil && exitcode.ClassOf(err) != exitcode.Removed; list, err = others.Members(ctx) {
		if lifecycle.Sleep(ctx, time.Second) != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return nil
		}
	}
	return fmt.Errorf("more than half of the servers%s run and agree with each other without this one: start coracle here, and it joins them "+
		"(--force resets nevertheless; they lose what they have written since)", memberNames(list))
}

// memberNames names members in brackets, if there are any.
func memberNames(list []join.Member) string {
	var names []string
	for _, m := range list {
		names = append(names, cmp.Or(m.Name, m.ID))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// resetQuorum lets the running control plane do the reset, or does it in this process if coracle is stopped.
func (i installation) resetQuorum(ctx context.Context, out io.Writer) error {
	snapshot := filepath.Join(i.dirs.Snapshots(), "etcd-"+time.Now().UTC().Format("20060102T150405Z"))
	if err := os.MkdirAll(i.dirs.Snapshots(), 0o700); err != nil {
		return fmt.Errorf("making a place for the copy: %w", err)
	}
	lock, err := supervise.Lock(i.dirs.Lock())
	var held *supervise.HeldError
	switch {
	case errors.As(err, &held):
		if err := controlplane.RequestReset(i.dirs, snapshot); err != nil {
			return err
		}
		err = i.awaitReset(ctx, out)
	case err != nil:
		return err
	default:
		defer lock.Close()
		cfg := i.config
		cfg.Dirs = i.dirs
		err = resetStopped(ctx, out, cfg, snapshot)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "This server's etcd is a cluster of one member. Its data as it was is in %s.\n", snapshot)
	fmt.Fprintln(out, "The other servers join it again when coracle starts there.")
	return nil
}

// awaitReset restarts the control plane, and prints the progress until the reset is done.
func (i installation) awaitReset(ctx context.Context, out io.Writer) error {
	// The front knows its process; the control plane's own file could name another one.
	front, ok, err := state.Read(i.dirs, state.Front)
	if pid := front.Child(state.ControlPlane).PID; err == nil && ok && front.Alive() && pid != 0 {
		fmt.Fprintln(out, "stopping the control plane; pods keep running")
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping the control plane: %w", err)
		}
	}
	printed := ""
	for {
		if _, err := os.Stat(i.dirs.ResetRequest()); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if waits := etcdWaits(i.dirs); waits != "" && waits != printed {
			printed = waits
			fmt.Fprintln(out, "waiting for "+waits)
		}
		if err := lifecycle.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("the reset goes on without this command; see coracle status: %w", err)
		}
	}
	m := members.Members{Socket: i.dirs.EtcdSocket()}
	members, err := m.List(ctx)
	if err != nil {
		return err
	}
	if len(members) != 1 {
		fmt.Fprintf(out, "%d servers are members again already\n", len(members))
	}
	return nil
}
