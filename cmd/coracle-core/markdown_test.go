package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// markdown is the section of a command in docs/reference.md.
func markdown(c *cobra.Command, text string, groups []flagGroup) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), paragraphs(text), c.UseLine())
	for _, g := range groups {
		title := "flag"
		if g.title != "" {
			title = g.title
		}
		fmt.Fprintf(&b, "\n| %s | |\n| --- | --- |\n", title)
		for _, f := range g.flags {
			fmt.Fprintf(&b, "| `%s` | %s |\n", config.FlagSyntax(f), cell(flagHelp(f)))
		}
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.Trim(c.Example, "\n"))
	}
	return b.String()
}

// paragraphs puts indented lines, as of lists in help texts, into code blocks, and escapes the rest.
func paragraphs(text string) string {
	var out []string
	for _, block := range strings.Split(text, "\n\n") {
		if strings.HasPrefix(block, "  ") {
			block = "```\n" + block + "\n```"
		} else {
			block = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`).Replace(block)
		}
		out = append(out, block)
	}
	return strings.Join(out, "\n\n")
}

// cell is text that fits into a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`).Replace(text)
}
