package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// etcdCommand shows and changes the embedded etcd.
func etcdCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "etcd",
		Long: `Show and look after the etcd that keeps the cluster's data. It needs root, on a server.

These commands are not needed from day to day: servers become members when they join and cease to be when
their Node is deleted, and the database is compacted and defragmented automatically.`,
	}
	return command.Group(c, etcdMembersCommand(), etcdStatusCommand(), etcdRemoveCommand(), etcdDefragCommand(), etcdSnapshotCommand())
}

// etcdTimeout bounds one request.
const etcdTimeout = 10 * time.Second

func etcdMembersCommand() *cobra.Command {
	c := &cobra.Command{Use: "members", Short: "List etcd's members", Args: command.NoArgs}
	return reporting(c, func(w io.Writer, s members.Status) error { return printMembers(w, s.Members) },
		func(s members.Status) any { return s.Members })
}

func etcdStatusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show how etcd is doing", Args: command.NoArgs}
	return reporting(c, printEtcdStatus, func(s members.Status) any { return s })
}

// reporting adds the flags and RunE to a command that prints a part of the status.
func reporting(c *cobra.Command, text func(io.Writer, members.Status) error, value func(members.Status) any) *cobra.Command {
	output := command.OutputFlag(c, "", "json", "yaml")
	return with(c, installation.members, func(c *cobra.Command, m *members.Members, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), etcdTimeout)
		defer cancel()
		status, err := m.Status(ctx)
		if err != nil {
			return err
		}
		return command.Print(c.OutOrStdout(), *output, value(status), func(w io.Writer) error { return text(w, status) })
	})
}

func etcdRemoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a member that will not come back",
		Long: `Remove a member, by its name or identity, that will not come back. Deleting the server's Node does the same.

A server that comes back nevertheless, or still runs, joins again by itself, with the others' data.`,
		Example: `# The machine server-2 is broken
coracle etcd remove server-2`,
		Args: cobra.ExactArgs(1),
	}
	force := c.Flags().Bool("force", false, "Remove it though it runs: it joins again with the others' data")
	return with(c, installation.members, func(c *cobra.Command, m *members.Members, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), 2*etcdTimeout)
		defer cancel()
		status, err := m.Status(ctx)
		if err != nil {
			return err
		}
		for _, one := range status.Members {
			if (one.Name == args[0] || one.ID == args[0]) && one.Answers && !*force {
				return fmt.Errorf("%s runs, and would join again at once: stop coracle there first, or give --force to have it begin with the others' data", args[0])
			}
		}
		if err := m.Remove(ctx, args[0]); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "member %s is removed\n", args[0])
		return nil
	})
}

func etcdDefragCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "defrag",
		Short: "Give unused space of this server's database back",
		Long: `Give unused space of this server's database back to the file system. That is done by itself when it is worth it.

This server's etcd answers nothing meanwhile, some seconds for each gigabyte, so all others must answer.`,
		Args: command.NoArgs,
	}
	force := c.Flags().Bool("force", false, "Go on though another member does not answer")
	return with(c, installation.members, func(c *cobra.Command, m *members.Members, _ []string) error {
		before, err := m.Status(c.Context())
		if err != nil {
			return err
		}
		for _, one := range before.Members {
			if !one.Answers && !*force {
				return fmt.Errorf("%s does not answer, and without this server too the cluster might stand still: start it first, or give --force", one.Name)
			}
		}
		if err := m.Defragment(c.Context()); err != nil {
			return err
		}
		after, err := m.Status(c.Context())
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "the database was %s and is %s\n", size(before.Size), size(after.Size))
		return nil
	})
}

// members returns access to the members of etcd through this server's own.
func (i installation) members() (*members.Members, error) {
	if err := i.ownEtcd(); err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", i.dirs.EtcdSocket(), time.Second)
	if err != nil {
		return nil, i.whySilent()
	}
	conn.Close()
	dir := i.dirs.PKI() + "/etcd/"
	return &members.Members{Socket: i.dirs.EtcdSocket(), CA: dir + "ca.crt", Cert: dir + "peer.crt", Key: dir + "peer.key"}, nil
}

// ownEtcd returns an error if this machine has no etcd of coracle, or if the user is not root.
func (i installation) ownEtcd() error {
	switch {
	case os.Geteuid() != 0:
		return errors.New("only root may see the cluster's data: use sudo")
	case i.config.Role == config.Agent:
		return errors.New("this machine is an agent, and has none of the cluster's data: run this on a server")
	case i.config.Datastore.External():
		return fmt.Errorf("this cluster's data is in an etcd that coracle does not run, at %s: use its own tools",
			strings.Join(i.config.Datastore.Endpoints, ", "))
	}
	return nil
}

// whySilent returns the error of an etcd that does not answer, with what it waits for.
func (i installation) whySilent() error {
	if waits := etcdWaits(i.dirs); waits != "" {
		return fmt.Errorf("etcd does not answer yet, because it waits for %s", waits)
	}
	return errors.New("etcd does not answer: start coracle, and see coracle status")
}

func etcdWaits(dirs paths.Dirs) string {
	p, ok, err := state.Read(dirs, state.ControlPlane)
	if err != nil || !ok || !p.Alive() {
		return ""
	}
	etcd, _ := p.Unit("etcd")
	return etcd.Waiting
}

func printMembers(w io.Writer, members []members.MemberStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tID\tROLE\tANSWERS\tADDRESS")
	for _, m := range members {
		role := "voter"
		switch {
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.ID, role, yesNo(m.Answers), strings.Join(m.PeerURLs, ","))
	}
	return t.Flush()
}

func printEtcdStatus(w io.Writer, s members.Status) error {
	err := printMembers(w, s.Members)
	fmt.Fprintf(w, "\netcd %s, term %d, entry %d\n", s.Version, s.Term, s.Index)
	fmt.Fprintf(w, "database of this server: %s, of which %s in use, limit %s\n", size(s.Size), size(s.InUse), size(s.Quota))
	if !s.Quorum {
		fmt.Fprintln(w, "The members do not agree: more than half of them must run. If they are lost for good, see coracle cluster reset-quorum.")
	}
	for _, a := range s.Alarms {
		fmt.Fprintf(w, "ALARM %s of %s: see docs/high-availability.md\n", a.Kind, a.Member)
	}
	return err
}

// size formats a number of bytes: 12.3 MiB.
func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
