package manual

import (
	"fmt"
	"strings"
)

// Markdown is the section of a command.
func (p Page) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n```\n%s\n```\n", p.Name, paragraphs(p.text()), p.Usage)
	for _, g := range p.Groups {
		title := "flag"
		if g.Title != "" {
			title = g.Title
		}
		fmt.Fprintf(&b, "\n| %s | |\n| --- | --- |\n", title)
		for _, f := range g.Flags {
			fmt.Fprintf(&b, "| `%s` | %s |\n", f.Syntax(), cell(f.Help))
		}
	}
	if example := p.example(); example != "" {
		fmt.Fprintf(&b, "\n```sh\n%s\n```\n", example)
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
