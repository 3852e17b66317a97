package command

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// versions is the output of coracle version for programs.
type versions struct {
	Version    string              `json:"version"`
	Commit     string              `json:"commit"`
	Go         string              `json:"go"`
	Platform   string              `json:"platform"`
	Components []payload.Component `json:"components,omitempty"`
}

const (
	versionLong    = `Print the versions of coracle and of the parts that are in it.`
	versionExample = `
# All versions, for programs
coracle version -o json

# The licences of everything that is in this file
coracle version --licenses`
)

func versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the versions of coracle and what is in it", Long: versionLong, Example: versionExample, Args: NoArgs,
	}
	c.Flags().SortFlags = false
	format := OutputFlag(c, "", "json", "yaml")
	short := c.Flags().Bool("short", false, "Print coracle's own version only")
	licenses := c.Flags().Bool("licenses", false, "Print the licences of everything that is in this file")
	c.RunE = func(*cobra.Command, []string) error {
		switch {
		case *licenses:
			text, err := payload.Licenses()
			if err != nil {
				return fmt.Errorf("reading the licences: %w", err)
			}
			_, err = os.Stdout.Write(text)
			return err
		case *short:
			fmt.Println(version.Version)
			return nil
		}
		return printVersion(*format)
	}
	return c
}

func printVersion(format string) error {
	v := versions{
		Version:  version.Version,
		Commit:   version.Commit,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	var err error
	if v.Components, err = payload.Versions(); err != nil {
		// coracle's own version is printed even without the others.
		exitcode.Print(os.Stderr, fmt.Errorf("what else is in this build is not known: %w", err))
	}
	return v.print(format)
}

func (v versions) print(format string) error {
	if format == "" {
		fmt.Printf("coracle %s (%.12s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
		for _, c := range v.Components {
			fmt.Printf("  %-26s %s\n", c.Name, c.Version)
		}
		return nil
	}
	return PrintAs(os.Stdout, format, v)
}
