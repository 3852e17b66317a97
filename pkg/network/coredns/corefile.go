package coredns

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/coredns/caddy/caddyfile"
)

// setting has what render adds to a Corefile that is written for CoreDNS in a pod.
type setting struct {
	listen    []netip.AddrPort
	upstreams []string // in the place of /etc/resolv.conf
}

// hostResolvConf stands for the upstreams of the host in a Corefile.
const hostResolvConf = "/etc/resolv.conf"

// render adapts a Corefile of the cluster to this process. Lines keep their numbers, for error messages; comments are dropped.
//   - A server block without "bind" listens on the addresses of setting instead of all, and on their port instead of 53.
//   - "kubernetes" gets a client.
//   - "forward" gets a limit, "forward . /etc/resolv.conf" the host's name servers as well.
//   - "import" of files is removed, as there is no pod with volumes. Imports of snippets stay.
func render(corefile string, s setting) ([]byte, error) {
	r := renderer{setting: s, tokens: tokens(corefile)}
	for at := 0; at < len(r.tokens); {
		var err error
		if at, err = r.block(at); err != nil {
			return nil, err
		}
	}
	return []byte(text(r.tokens, strings.Count(corefile, "\n"))), nil
}

// text writes tokens at their lines, and has as many line breaks as the original.
func text(tokens []token, breaks int) string {
	var out strings.Builder
	line := 1 // of the original
	for _, t := range tokens {
		if t.first {
			out.WriteString(strings.Repeat("\n", t.line-line) + t.out)
		} else {
			out.WriteString(" " + t.out)
		}
		line = t.line + strings.Count(t.text, "\n")
	}
	return out.String() + strings.Repeat("\n", 1+breaks-line)
}

// token is a word of a Corefile.
type token struct {
	text  string // without quotes
	line  int    // from 1
	first bool   // whether it is the first of its line
	out   string // what render writes in its place
}

// tokens splits a Corefile into words with Caddy's own lexer.
func tokens(corefile string) []token {
	var out []token
	lastLine := 0 // of the end of the previous token
	for d := caddyfile.NewDispenser("Corefile", strings.NewReader(corefile)); d.Next(); {
		out = append(out, token{d.Val(), d.Line(), d.Line() != lastLine, quote(d.Val())})
		lastLine = d.Line() + strings.Count(d.Val(), "\n")
	}
	return out
}

// quote writes a word so that Caddy's lexer reads it as one.
func quote(word string) string {
	needed := func(r rune) bool { return unicode.IsSpace(r) || r == '#' }
	if word == "" || strings.HasPrefix(word, `"`) || strings.ContainsFunc(word, needed) {
		return `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
	}
	return word
}

type renderer struct {
	setting
	tokens []token
}

// is reports whether a token exists and is this word.
func (r *renderer) is(at int, word string) bool {
	return at < len(r.tokens) && r.tokens[at].text == word
}

// onLine reports whether a token exists and is not the first of its line.
func (r *renderer) onLine(at int) bool { return at < len(r.tokens) && !r.tokens[at].first }

// block handles one server block or snippet, which begins at a token, and returns the end of its closing brace.
func (r *renderer) block(at int) (end int, err error) {
	if r.is(at, "import") {
		r.skipImport(at)
		return at + 2, nil
	}
	keys := at
	snippet := strings.HasPrefix(r.tokens[keys].text, "(")
	for ; at < len(r.tokens) && !r.is(at, "{"); at++ {
		t := &r.tokens[at]
		if t.first && at > keys && !strings.HasSuffix(r.tokens[at-1].text, ",") {
			return 0, fmt.Errorf("Corefile:%d: expected { after the names of the server block", r.tokens[at-1].line)
		}
		if !snippet {
			t.out = quote(r.key(t.text))
		}
	}
	if at == len(r.tokens) {
		return at, nil // names without a block: Caddy reports the error
	}
	open := at
	end, hasBind := r.directives(open)
	if !snippet && !hasBind {
		r.tokens[open].out = "{ " + r.bind()
		if r.onLine(open + 1) {
			r.tokens[open].out += "\n"
		}
	}
	return end, nil
}

// directives handles the directives of the block that opens at a token. It returns the end of the block, and whether it has "bind".
func (r *renderer) directives(open int) (end int, hasBind bool) {
	depth := 1
	for at := open + 1; at < len(r.tokens); at++ {
		t := &r.tokens[at]
		begins := t.first || depth == 1 && r.is(at-1, "{")
		switch {
		case t.text == "{":
			depth++
		case t.text == "}":
			if depth--; depth == 0 {
				return at + 1, hasBind
			}
		case begins && t.text == "import":
			r.skipImport(at)
		case begins && depth == 1 && t.text == "bind":
			hasBind = true
		case begins && depth == 1 && t.text == "kubernetes":
			t.out = kubernetesDirective
		case begins && depth == 1 && t.text == "forward":
			r.forward(at)
		}
	}
	return len(r.tokens), hasBind
}

// forward handles a forward directive: FROM, then TO on the same line.
func (r *renderer) forward(at int) {
	r.tokens[at].out = forwardDirective // which reports what is missing
	if !r.onLine(at + 1) {
		return
	}
	count, host := 0, -1
	for i := at + 2; r.onLine(i) && !r.is(i, "{"); i++ {
		if count++; host < 0 && r.is(i, hostResolvConf) {
			host = i
		}
	}
	switch {
	case host >= 0 && len(r.upstreams) == 0 && count == 1:
		r.tokens[at].out = noUpstreamDirective
	case host >= 0:
		r.tokens[host].out = strings.Join(r.upstreams, " ")
	}
}

// skipImport removes an import of files.
func (r *renderer) skipImport(at int) {
	if !r.onLine(at + 1) {
		return
	}
	snippet := "(" + r.tokens[at+1].text + ")"
	if !slices.ContainsFunc(r.tokens, func(t token) bool { return t.first && t.text == snippet }) {
		r.tokens[at].out, r.tokens[at+1].out = "", ""
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

func (r *renderer) bind() string {
	words := []string{"bind"}
	for _, l := range r.listen {
		words = append(words, l.Addr().String())
	}
	return strings.Join(words, " ")
}
