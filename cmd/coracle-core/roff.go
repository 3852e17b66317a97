package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// section is the section of man that the pages are in.
const section = "1"

// pageName returns the name of a command's page: coracle-up-list.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// extraSection is a further section of a page.
type extraSection struct{ title, text string }

// roff returns the page of a command for man. date is that of the release, version its name. Indented blocks of extra sections
// are printed as they are.
func roff(c *cobra.Command, version, date string, extra ...extraSection) string {
	var see []string
	if c.HasParent() {
		see = append(see, pageName(c.Parent()))
	}
	for _, below := range visible(c) {
		see = append(see, pageName(below))
	}
	var b strings.Builder
	name := pageName(c)
	fmt.Fprintf(&b, ".TH %s %s %s %s %s\n", quoted(strings.ToUpper(name)), section, `"`+date+`"`, quoted("coracle "+version), quoted("coracle"))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(c.UseLine()))
	b.WriteString(".SH DESCRIPTION\n" + blocks(longText(c)))
	for i, g := range flagGroups(c) {
		if i == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		if g.title != "" {
			b.WriteString(".SS " + escape(g.title) + "\n")
		}
		for _, f := range g.flags {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s", escape(config.FlagSyntax(f)), lines(flagHelp(f)))
		}
	}
	for _, e := range extra {
		b.WriteString(".SH " + escape(strings.ToUpper(e.title)) + "\n" + blocks(e.text))
	}
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + verbatim(c.Example))
	}
	if len(see) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, s := range see {
			comma := ","
			if i == len(see)-1 {
				comma = ""
			}
			fmt.Fprintf(&b, ".BR %s (%s)%s\n", escape(s), section, comma)
		}
	}
	return b.String()
}

// blocks formats paragraphs; those that are indented are kept as they are.
func blocks(text string) string {
	var b strings.Builder
	for i, block := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		switch {
		case strings.HasPrefix(block, "  ") && i > 0:
			b.WriteString(".PP\n" + verbatim(block))
		case strings.HasPrefix(block, "  "):
			b.WriteString(verbatim(block))
		case i > 0:
			b.WriteString(".PP\n" + lines(block))
		default:
			b.WriteString(lines(block))
		}
	}
	return b.String()
}

func verbatim(text string) string { return ".RS 4\n.nf\n" + lines(text) + ".fi\n.RE\n" }

// lines escapes text line by line: a leading dot would be a request.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		line = escape(strings.TrimRight(line, " \n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// escape writes text so that it is shown as it is, and can be copied: a plain - would become another sign.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

func quoted(text string) string { return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"` }
