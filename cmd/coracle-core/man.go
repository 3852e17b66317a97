package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/manual"
	"github.com/coracle-dev/coracle/pkg/core/version"
)

// manCommand writes pages for man.
func manCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "Print a page for man, or write all of them",
		Long: `Print the page for man of coracle, or of one of its commands, or write the pages of all commands to a directory.

With SOURCE_DATE_EPOCH set the pages have that date.`,
		Example: `  # Read one
  coracle man up | man -l -

  # Install all of them
  sudo coracle man --dir /usr/local/share/man/man1`,
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []string
			for _, p := range pagesOf(c.Root()) {
				if words := strings.Fields(p.Name); len(words) == len(args)+2 && slices.Equal(words[1:len(words)-1], args) {
					names = append(names, words[len(words)-1])
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
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
		name := strings.Join(append([]string{"coracle"}, args...), "-") + "." + manual.Section
		text, ok := pages[name]
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

// manPages are the pages of all commands by file name.
func manPages(root *cobra.Command) map[string]string {
	date := time.Now()
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(seconds, 0)
	}
	day := date.UTC().Format(time.DateOnly)
	pages := pagesOf(root)
	out := map[string]string{}
	top := manual.Page{
		Name: "coracle", Short: "Kubernetes in one executable", Usage: "coracle COMMAND [flags]", Long: root.Long,
	}
	var list strings.Builder
	var names []string
	for _, p := range pages {
		if strings.Count(p.Name, " ") == 1 {
			fmt.Fprintf(&list, "  %-26s %s\n", p.Name, p.Short)
			names = append(names, strings.ReplaceAll(p.Name, " ", "-"))
		}
	}
	out[top.File()] = top.Roff(version.Version, day, names, manual.Extra{Title: "Commands", Text: list.String()},
		manual.Extra{Title: "Files", Text: filesText}, manual.Extra{Title: "Exit status", Text: exitText()})
	for _, p := range pages {
		out[p.File()] = p.Roff(version.Version, day, related(p, pages))
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

func exitText() string {
	var b strings.Builder
	exitcode.List(&b)
	return b.String()
}

// related are the pages of what is above and below a command.
func related(p manual.Page, all []manual.Page) []string {
	parent := p.Name[:strings.LastIndexByte(p.Name, ' ')]
	out := []string{strings.ReplaceAll(parent, " ", "-")}
	for _, other := range all {
		if rest, below := strings.CutPrefix(other.Name, p.Name+" "); below && !strings.Contains(rest, " ") {
			out = append(out, strings.ReplaceAll(other.Name, " ", "-"))
		}
	}
	return out
}

// pagesOf describes all commands in the order of help, each followed by those below it.
func pagesOf(root *cobra.Command) (out []manual.Page) {
	front, err := manual.Front()
	if err != nil {
		return nil // its test has it
	}
	own := map[string]*cobra.Command{}
	for _, mine := range commands() {
		if c, _, err := root.Find([]string{mine.Name()}); err == nil {
			own[c.CommandPath()] = c
		}
	}
	for _, p := range front {
		switch c := own[p.Name]; {
		case strings.Count(p.Name, " ") > 1, p.Name == "coracle help":
		case c != nil:
			tree := treePages(c)
			tree[0].Group = p.Group
			out = append(out, tree...)
		default:
			out = append(out, settingsOf(p))
			for _, below := range front {
				if strings.HasPrefix(below.Name, p.Name+" ") {
					out = append(out, below)
				}
			}
		}
	}
	return out
}

// treePages describes a command and all below it.
func treePages(c *cobra.Command) []manual.Page {
	out := []manual.Page{{
		Name: c.CommandPath(), Short: c.Short, Long: c.Long, Example: c.Example, Usage: c.UseLine(), Groups: manual.Flags(c.LocalFlags()),
	}}
	for _, below := range c.Commands() {
		if !below.Hidden {
			out = append(out, treePages(below)...)
		}
	}
	return out
}

// settingsOf completes the pages of server and agent with their settings, and says where the manuals of tools are that
// are not ours.
func settingsOf(p manual.Page) manual.Page {
	switch name := strings.TrimPrefix(p.Name, "coracle "); name {
	case "server", "agent":
		p.Groups = manual.Usage(config.Usage(config.Role(name)))
	case "kubectl", "crictl", "ctr":
		p.Usage = "coracle " + name + " [ARGUMENTS...]"
		p.See = "It is the upstream program with coracle's addresses as its defaults; " + name + " --help has its manual. A link named " + name + " to coracle is the same."
	}
	return p
}
