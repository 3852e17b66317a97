package coredns

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// setting has what render adds to a Corefile that is written for CoreDNS in a pod.
type setting struct {
	listen     []netip.AddrPort
	kubeconfig string
	upstreams  []string // in the place of /etc/resolv.conf
}

// hostResolvConf stands for the upstreams of the host in a Corefile.
const hostResolvConf = "/etc/resolv.conf"

// render adapts a Corefile of the cluster to this process. Lines keep their numbers, for error messages.
//   - A server block without "bind" listens on the addresses of setting instead of all, and on their port instead of 53.
//   - "kubernetes" gets a client.
//   - "forward" gets a limit, "forward . /etc/resolv.conf" the host's name servers as well.
//   - "import" of files is removed, as there is no pod with volumes. Imports of snippets stay.
func render(corefile string, s setting) ([]byte, error) {
	r := renderer{setting: s, in: corefile, tokens: tokens(corefile)}
	r.snippets = snippets(r.tokens)
	for r.at < len(r.tokens) {
		if err := r.block(); err != nil {
			return nil, err
		}
	}
	r.out.WriteString(r.in[r.copied:])
	return []byte(r.out.String()), nil
}

type renderer struct {
	setting
	in       string
	tokens   []token
	snippets []string
	at       int // next token
	copied   int // length of the prefix of in that is in out
	out      strings.Builder
}

// snippets returns the names of the blocks that can be imported.
func snippets(all []token) []string {
	var names []string
	for _, t := range all {
		if t.first && strings.HasPrefix(t.text, "(") && strings.HasSuffix(t.text, ")") {
			names = append(names, strings.Trim(t.text, "()"))
		}
	}
	return names
}

// block handles one server block or snippet, from its first key to its closing brace.
func (r *renderer) block() error {
	if r.tokens[r.at].text == "import" {
		r.skipImport()
		return nil
	}
	keys := r.at
	snippet := strings.HasPrefix(r.tokens[keys].text, "(")
	for ; r.at < len(r.tokens) && r.tokens[r.at].text != "{"; r.at++ {
		t := r.tokens[r.at]
		if t.first && r.at > keys && !strings.HasSuffix(r.tokens[r.at-1].text, ",") {
			return fmt.Errorf("Corefile:%d: expected { after the names of the server block", r.tokens[r.at-1].line)
		}
		if !snippet {
			r.replace(t, r.key(t.text))
		}
	}
	if r.at == len(r.tokens) {
		return nil // names without a block: Caddy reports the error
	}
	open := r.tokens[r.at]
	if !snippet && !r.hasBind(r.at) {
		r.replace(open, "{ "+r.bind())
		if next := r.at + 1; next < len(r.tokens) && !r.tokens[next].first {
			r.out.WriteString("\n")
		}
	}
	r.at++
	r.directives()
	return nil
}

// directives handles the directives between the braces of a block.
func (r *renderer) directives() {
	depth := 1
	for ; r.at < len(r.tokens) && depth > 0; r.at++ {
		t := r.tokens[r.at]
		begins := t.first || (depth == 1 && r.tokens[r.at-1].text == "{")
		switch {
		case t.text == "{":
			depth++
		case t.text == "}":
			depth--
		case begins && t.text == "import":
			r.skipImport()
			r.at--
		case begins && depth == 1 && t.text == "kubernetes":
			r.replace(t, kubernetesDirective+" "+quote(r.kubeconfig))
		case begins && depth == 1 && t.text == "forward":
			r.forward()
		}
	}
}

// forward handles a forward directive: FROM, then TO on the same line.
func (r *renderer) forward() {
	directive := r.tokens[r.at]
	if from := r.at + 1; from >= len(r.tokens) || r.tokens[from].first {
		r.replace(directive, forwardDirective) // which reports what is missing
		return
	}
	var to []token
	for i := r.at + 2; i < len(r.tokens) && !r.tokens[i].first && r.tokens[i].text != "{"; i++ {
		to = append(to, r.tokens[i])
	}
	i := slices.IndexFunc(to, func(t token) bool { return t.text == hostResolvConf })
	if i >= 0 && len(r.upstreams) == 0 && len(to) == 1 {
		r.replace(directive, noUpstreamDirective)
		return
	}
	r.replace(directive, forwardDirective)
	if i >= 0 {
		r.replace(to[i], strings.Join(r.upstreams, " "))
	}
}

// skipImport steps over an import, and removes it if it imports files.
func (r *renderer) skipImport() {
	statement := r.tokens[r.at]
	r.at++
	if r.at == len(r.tokens) || r.tokens[r.at].first {
		return
	}
	pattern := r.tokens[r.at]
	r.at++
	if !slices.Contains(r.snippets, pattern.text) {
		r.replace(token{start: statement.start, end: pattern.end}, "")
	}
}

// key returns the name of a server block with the port of setting in the place of 53.
func (r *renderer) key(key string) string {
	name, comma := strings.TrimSuffix(key, ","), ""
	if name != key {
		comma = ","
	}
	parts := keyParts.FindStringSubmatch(name)
	if parts[1] != "" && parts[1] != "dns://" || parts[3] != "" && parts[3] != "53" {
		return key
	}
	return fmt.Sprintf("%s%s:%d%s", parts[1], parts[2], r.listen[0].Port(), comma)
}

// keyParts splits a key into transport, zone and port.
var keyParts = regexp.MustCompile(`(?s)^([a-z0-9]+://)?(.*?)(?::(\d+))?$`)

// hasBind reports whether the block that opens at token i has the directive bind.
func (r *renderer) hasBind(i int) bool {
	depth := 0
	for ; i < len(r.tokens); i++ {
		switch t := r.tokens[i]; {
		case t.text == "{":
			depth++
		case t.text == "}":
			depth--
			if depth == 0 {
				return false
			}
		case depth == 1 && t.text == "bind" && (t.first || r.tokens[i-1].text == "{"):
			return true
		}
	}
	return false
}

func (r *renderer) bind() string {
	words := []string{"bind"}
	for _, l := range r.listen {
		words = append(words, l.Addr().String())
	}
	return strings.Join(words, " ")
}

// replace replaces a token by text. Tokens must be replaced in their order.
func (r *renderer) replace(t token, text string) {
	if r.in[t.start:t.end] == text {
		return
	}
	r.out.WriteString(r.in[r.copied:t.start])
	r.out.WriteString(text)
	r.copied = t.end
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
