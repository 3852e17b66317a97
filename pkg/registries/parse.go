package registries

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads the file and what it names. A file that is not there says nothing. The error names the line and the key of
// everything that is wrong, and no secret.
func Load(file string) (*File, error) {
	p := newParser(file)
	return p.load()
}

// parser reads one file. It goes on after a mistake, to tell of all.
type parser struct {
	file     string
	contents map[string]string // what was read, by path; see Live
	out      *File
	wrong    []error
}

func newParser(file string) *parser {
	return &parser{file: file, contents: map[string]string{}, out: &File{mirrors: map[string]mirror{}, configs: map[string]access{}}}
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
	auths() // wherever it is written: configs beats it
	if len(p.wrong) > 0 {
		return nil, errors.Join(p.wrong...)
	}
	return p.out, nil
}

// withoutText keeps of a YAML error where it is and not what is written there.
func withoutText(err error) error {
	if at := regexp.MustCompile(`line \d+`).FindString(err.Error()); at != "" {
		return fmt.Errorf("%s: this is no YAML", at)
	}
	return errors.New("this is no YAML")
}

// read reads a file and remembers what was in it.
func (p *parser) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	p.contents[path] = fingerprint(data, err)
	return data, err
}

// fail notes what is wrong with a key's value.
func (p *parser) fail(n *yaml.Node, key, format string, args ...any) {
	if key != "" {
		key += ": "
	}
	p.wrong = append(p.wrong, fmt.Errorf("%s, line %d: %s%s", p.file, n.Line, key, fmt.Sprintf(format, args...)))
}

// field reads the value of a key.
type field func(value *yaml.Node, key string)

// fields reads a mapping of which all keys are known.
func (p *parser) fields(n *yaml.Node, at string, known map[string]field) {
	p.entries(n, at, func(name, value *yaml.Node, key string) {
		read, ok := known[name.Value]
		if !ok {
			p.fail(name, key, "there is no such setting%s", suggestion(known))
			return
		}
		read(value, key)
	})
}

func suggestion(known map[string]field) string {
	names := make([]string, 0, len(known))
	for name := range known {
		if name != "auths" { // it is understood, and nobody should begin with it
			names = append(names, name)
		}
	}
	return " (there are: " + sortedList(names) + ")"
}

// entries reads a mapping with any keys. Nothing at all is an empty one.
func (p *parser) entries(n *yaml.Node, at string, each func(name, value *yaml.Node, key string)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.fail(n, at, "this has to be a list of keys with values")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := name.Value
		if at != "" {
			key = at + "." + name.Value
		}
		if seen[name.Value] {
			p.fail(name, key, "this is there twice")
			continue
		}
		seen[name.Value] = true
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		each(name, value, key)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// text reads a scalar; null is "".
func (p *parser) text(n *yaml.Node, key string) string {
	if n.Kind != yaml.ScalarNode {
		p.fail(n, key, "this has to be text")
		return ""
	}
	if isNull(n) {
		return ""
	}
	return n.Value
}

func (p *parser) mirrors(n *yaml.Node, at string) {
	p.entries(n, at, func(name, value *yaml.Node, key string) {
		host := p.host(name, key)
		if _, twice := p.out.mirrors[host]; twice {
			p.fail(name, key, "%s is there already, under its other name", host)
		}
		var m mirror
		p.fields(value, key, map[string]field{
			"endpoint": func(n *yaml.Node, key string) { m.endpoints = p.endpoints(n, key) },
			"rewrite":  func(n *yaml.Node, key string) { m.rewrites = p.rewrites(n, key) },
		})
		p.out.mirrors[host] = m
	})
}

// host reads the name of a registry.
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
		at, err := endpointURL(p.text(item, key))
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

// endpointURL reads the address of an endpoint: what is left out of it is as k3s has it.
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
			p.fail(name, key, "this is no regular expression: %v", err)
			return
		}
		out = append(out, rewrite{pattern, p.text(value, key)})
	})
	return out
}

// userPassword reads "user:password" in base64.
func userPassword(text string) (user, password string, ok bool) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(data), ":")
	return user, password, ok && user != ""
}
