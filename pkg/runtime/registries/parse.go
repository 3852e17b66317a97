package registries

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"regexp/syntax"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads the file and the files that it names. A missing file is empty. The error has the line and the key of every mistake, and no
// secret.
func Load(file string) (*File, error) {
	p := newParser(file)
	return p.load()
}

// parser reads one file. It continues after a mistake, to report all of them.
type parser struct {
	file     string
	at       func(path string) string // see Live
	contents map[string]string        // fingerprints by path, see Live
	out      *File
	wrong    []error
}

func newParser(file string) *parser {
	return &parser{file: file, at: func(named string) string { return named }, contents: map[string]string{}, out: &File{mirrors: map[string]mirror{}, configs: map[string]access{}}}
}

func (p *parser) load() (*File, error) {
	data, err := p.read(p.file)
	if errors.Is(err, os.ErrNotExist) {
		return p.out, nil
	}
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", p.file, withoutText(err))
	}
	if len(doc.Content) == 0 {
		return p.out, nil
	}
	auths := func() {}
	p.fields(doc.Content[0], "", map[string]field{"mirrors": p.mirrors, "configs": p.configs,
		"auths": func(n *yaml.Node, key string) { auths = func() { p.auths(n, key) } }})
	auths() // last, because configs goes before it
	if len(p.wrong) > 0 {
		return nil, errors.Join(p.wrong...)
	}
	return p.out, nil
}

// withoutText keeps the line of a YAML error and drops its text, which may contain secrets.
func withoutText(err error) error {
	if at := regexp.MustCompile(`line \d+`).FindString(err.Error()); at != "" {
		return fmt.Errorf("%s: this is no YAML", at)
	}
	return errors.New("this is no YAML")
}

// read reads a file and records its fingerprint.
func (p *parser) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	p.contents[path] = fingerprint(data, err)
	return data, err
}

func (p *parser) mirrors(n *yaml.Node, at string) {
	p.entries(n, at, func(name, value *yaml.Node, key string) {
		host := p.host(name, key)
		var m mirror
		p.fields(value, key, map[string]field{
			"endpoint": func(n *yaml.Node, key string) { m.endpoints = p.endpoints(n, key) },
			"rewrite":  func(n *yaml.Node, key string) { m.rewrites = p.rewrites(n, key) },
		})
		if _, twice := p.out.mirrors[host]; !twice || p.before(name, key, host, dockerName) {
			p.out.mirrors[host] = m
		}
	})
}

// before reports whether an entry replaces another one of the same registry under another name. The entry under the name best does.
func (p *parser) before(name *yaml.Node, key, host, best string) bool {
	better := name.Value == best
	if better {
		p.warn(name, "%s goes before what %s has under its other name", key, host)
	} else {
		p.warn(name, "%s does nothing: %s is there already, under its other name", key, host)
	}
	return better
}

// host returns the canonical name of a registry.
func (p *parser) host(n *yaml.Node, key string) string {
	if n.Value == "" || n.Value != anyHost && strings.ContainsAny(n.Value, "/*@ ") {
		p.fail(n, key, `a registry is named as in its images, HOST or HOST:PORT, or "*" for all others`)
	}
	return Canonical(n.Value)
}

func (p *parser) endpoints(n *yaml.Node, key string) (out []url.URL) {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.fail(n, key, `this has to be a list, as in ["https://mirror.example.org"]`)
		return nil
	}
	seen := map[url.URL]bool{}
	for _, item := range n.Content {
		at, err := endpointURL(p.text(target(item), key))
		if err != nil {
			p.fail(item, key, "%v", err)
			continue
		}
		if !seen[at] {
			seen[at] = true
			out = append(out, at)
		}
	}
	return out
}

// endpointURL parses the address of an endpoint, with k3s's defaults for missing parts.
func endpointURL(text string) (url.URL, error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "//" + text
	}
	u, err := url.Parse(full)
	if err != nil || u.Host == "" {
		return url.URL{}, errors.New("this is no address of a registry, such as https://mirror.example.org:5000")
	}
	if u.Scheme == "" {
		u.Scheme = defaultScheme(u.Host)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return url.URL{}, fmt.Errorf("registries are reached by http or https, not by %s", u.Scheme)
	case u.User != nil:
		return url.URL{}, errors.New("names and passwords do not belong into an address, but into configs.HOST.auth")
	case u.RawQuery != "" || u.Fragment != "":
		return url.URL{}, errors.New("an address of a registry ends with its path")
	}
	at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}
	if Canonical(at.Host) == dockerName {
		at.Host = dockerHost
	}
	if at.Path == "" {
		at.Path = "/v2"
	}
	return at, nil
}

func (p *parser) rewrites(n *yaml.Node, at string) (out []rewrite) {
	p.entries(n, at, func(name, value *yaml.Node, key string) {
		pattern, err := regexp.Compile(name.Value)
		if err != nil {
			bad := &syntax.Error{} // Compile returns no other kind
			errors.As(err, &bad)
			p.fail(name, key, "this is no regular expression: %s", bad.Code) // without its text, as in shown
			return
		}
		out = append(out, rewrite{pattern, p.text(value, key)})
	})
	return out
}

// userPassword decodes "user:password" in base64.
func userPassword(text string) (user, password string, ok bool) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(data), ":")
	return user, password, ok && user != ""
}
