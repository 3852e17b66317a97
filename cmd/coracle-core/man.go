package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// manCommand writes pages for man.
func manCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "man [COMMAND]",
		Long: `Print the page for man of coracle, or of one of its commands, or write the pages of all commands to a directory.

With SOURCE_DATE_EPOCH set the pages have that date.`,
		Example: `# Read one
coracle man up | man -l -

# Install all of them
sudo coracle man --dir /usr/local/share/man/man1`,
		ValidArgsFunction: command.CompleteCommands,
	}
	dir := c.Flags().String("dir", "", "Write the pages of all commands into this directory")
	_ = c.MarkFlagDirname("dir")
	c.RunE = func(c *cobra.Command, args []string) error {
		pages := manPages(c.Root())
		if *dir != "" {
			if len(args) > 0 {
				return exitcode.Usagef("give a command or --dir, not both")
			}
			return writePages(*dir, pages)
		}
		text, ok := pages[strings.Join(append([]string{"coracle"}, args...), "-")+"."+section]
		if !ok {
			return exitcode.Usagef("there is no command %q; coracle help lists all", strings.Join(args, " "))
		}
		_, err := c.OutOrStdout().Write([]byte(text))
		return err
	}
	return c
}

func writePages(dir string, pages map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory for the pages: %w", err)
	}
	var failed []error
	for name, text := range pages {
		failed = append(failed, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return errors.Join(failed...)
}

// manPages returns the pages of all commands by file name.
func manPages(root *cobra.Command) map[string]string {
	date := time.Now()
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(seconds, 0)
	}
	day := date.UTC().Format(time.DateOnly)
	var list, codes strings.Builder
	for _, c := range visible(root) {
		fmt.Fprintf(&list, "  %-26s %s\n", c.CommandPath(), c.Short)
	}
	exitcode.List(&codes)
	extra := []extraSection{{"Commands", list.String()}, {"Files", filesText}, {"Exit status", codes.String()}}
	out := map[string]string{pageName(root) + "." + section: roff(root, version.Version, day, extra...)}
	for _, c := range below(root) {
		out[pageName(c)+"."+section] = roff(c, version.Version, day)
	}
	return out
}

const filesText = `  /etc/coracle/config.yaml     settings
  /etc/coracle/kubeconfig.yaml the administrator's access to the cluster
  /var/lib/coracle             data; what must survive is in here
  /var/lib/coracle/manifests   objects that are applied
  /var/lib/coracle/images      image archives that are imported
  /var/lib/coracle/log         the last 16 MiB of log, as coracle logs shows them
  /run/coracle                 sockets and states`

// visible returns the commands directly below c that have a page, in the order of help.
func visible(c *cobra.Command) (out []*cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			out = append(out, sub)
		}
	}
	return out
}

// below returns all commands below c that have a page, each before those below it.
func below(c *cobra.Command) (out []*cobra.Command) {
	for _, sub := range visible(c) {
		out = append(append(out, sub), below(sub)...)
	}
	return out
}

// flagGroup is some flags of a command under a title, which is "" for most flags.
type flagGroup struct {
	title string
	flags []*pflag.Flag
}

// flagGroups returns the flags of a command in its order, without hidden ones.
func flagGroups(c *cobra.Command) (groups []flagGroup) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || !c.HasParent() { // the flags of the root are for scripts that know other programs
			return
		}
		title := strings.Join(f.Annotations[config.GroupAnnotation], "")
		if len(groups) == 0 || groups[len(groups)-1].title != title {
			groups = append(groups, flagGroup{title: title})
		}
		last := &groups[len(groups)-1]
		last.flags = append(last.flags, f)
	})
	return groups
}

// flagHelp returns the help of a flag, with its default if that is not obvious.
func flagHelp(f *pflag.Flag) string {
	_, help := pflag.UnquoteUsage(f)
	if strings.Contains(help, "(default") || slices.Contains([]string{"", "[]", "0", "false", "0s", "<nil>", "-1"}, f.DefValue) {
		return help
	}
	return help + " (default " + f.DefValue + ")"
}

// longText returns the description of a command.
func longText(c *cobra.Command) string { return cmp.Or(strings.TrimSpace(c.Long), c.Short+".") }
