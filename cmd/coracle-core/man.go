package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/manual"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// manCommand writes pages for man.
func manCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "man [COMMAND]",
		Long: `Print the page for man of coracle, or of one of its commands, or write the pages of all commands to a directory.

With SOURCE_DATE_EPOCH set the pages have that date.`,
		Example: `  # Read one
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
	out := map[string]string{}
	pages := manual.Describe(root)
	var list strings.Builder
	for _, c := range pages[0].Below {
		fmt.Fprintf(&list, "  %-26s %s\n", c.Name, c.Short)
	}
	for _, p := range pages {
		var extra []manual.Extra
		if p.Above == "" {
			extra = []manual.Extra{{Title: "Commands", Text: list.String()}, {Title: "Files", Text: filesText}, {Title: "Exit status", Text: exitText()}}
		}
		out[p.File()] = p.Roff(version.Version, day, extra...)
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
