package manual

import (
	"fmt"
	"strings"
)

// Section is the section of man that the pages are in.
const Section = "1"

// File is the name of a command's page: coracle-up-list.1.
func (p Page) File() string { return strings.ReplaceAll(p.Name, " ", "-") + "." + Section }

// Extra is a further section of a page.
type Extra struct{ Title, Text string }

// Roff is the page for man. date is that of the release, version its name. Blocks of extra sections that are indented are
// set as they are.
func (p Page) Roff(version, date string, extra ...Extra) string {
	var see []string
	if p.Above != "" {
		see = append(see, strings.ReplaceAll(p.Above, " ", "-"))
	}
	for _, below := range p.Below {
		see = append(see, strings.ReplaceAll(below.Name, " ", "-"))
	}
	var b strings.Builder
	name := strings.ReplaceAll(p.Name, " ", "-")
	fmt.Fprintf(&b, ".TH %s %s %s %s %s\n", quoted(strings.ToUpper(name)), Section, `"`+date+`"`, quoted("coracle "+version), quoted("coracle"))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(p.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(p.Usage))
	b.WriteString(".SH DESCRIPTION\n" + blocks(p.text()))
	for i, g := range p.Groups {
		if i == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		if g.Title != "" {
			b.WriteString(".SS " + escape(g.Title) + "\n")
		}
		for _, f := range g.Flags {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s", escape(f.Syntax()), lines(f.Help))
		}
	}
	for _, e := range extra {
		b.WriteString(".SH " + escape(strings.ToUpper(e.Title)) + "\n" + blocks(e.Text))
	}
	if example := p.example(); example != "" {
		b.WriteString(".SH EXAMPLES\n" + verbatim(example))
	}
	if len(see) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, s := range see {
			comma := ","
			if i == len(see)-1 {
				comma = ""
			}
			fmt.Fprintf(&b, ".BR %s (%s)%s\n", escape(s), Section, comma)
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
