package results

import (
	"fmt"
	"strings"
)

// readme tells how to run the same tests again, which is what the CNCF asks for.
func (r Run) readme(s Summary) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance tests of Kubernetes %s\n\n", r.Version)
	fmt.Fprintf(&b, "On %s, with %d nodes for pods: %s.\n", r.Began.UTC().Format("2 January 2006"), r.Nodes, s)
	if why := r.Unfit(s); why != "" {
		fmt.Fprintf(&b, "\n**Not a run for a certificate**: %s.\n", why)
	}
	b.WriteString("\n## The cluster\n\n")
	if r.ours() {
		fmt.Fprintf(&b, `On the first machine, as root:

    curl -sfL https://github.com/coracle-dev/coracle/releases/latest/download/install.sh | INSTALL_CORACLE_VERSION=%[1]s sh -
    coracle token create

On each other machine, with the token that was printed:

    curl -sfL https://github.com/coracle-dev/coracle/releases/latest/download/install.sh | \
      INSTALL_CORACLE_VERSION=%[1]s CORACLE_URL=https://FIRST-MACHINE:6443 CORACLE_TOKEN=TOKEN sh -
`, r.Version)
	} else {
		b.WriteString(Placeholder + "how to make the cluster\n")
	}
	b.WriteString("\n## The tests\n\nWith an administrator's kubeconfig (on the first machine coracle finds it by itself):\n\n")
	fmt.Fprintf(&b, "    coracle conformance --image %s", quote(r.Image))
	if r.Focus != CertifiedFocus {
		b.WriteString(" --focus " + quote(r.Focus))
	}
	if r.Skip != "" {
		b.WriteString(" --skip " + quote(r.Skip))
	}
	if r.Parallel > 1 {
		fmt.Fprintf(&b, " --parallel %d", r.Parallel)
	}
	if r.DryRun {
		b.WriteString(" --dry-run")
	}
	fmt.Fprintf(&b, "\n\nIt runs the image in the cluster, and packs `%s` and `%s`.\n", Log, JUnit)
	return b.String()
}

// quote is a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
