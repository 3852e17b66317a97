package registries

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fail adds an error about the value of a key.
func (p *parser) fail(n *yaml.Node, key, format string, args ...any) {
	if key != "" {
		key += ": "
	}
	p.wrong = append(p.wrong, fmt.Errorf("%s, line %d: %s%s", p.file, n.Line, key, fmt.Sprintf(format, args...)))
}

// warn adds a warning.
func (p *parser) warn(n *yaml.Node, format string, args ...any) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf("%s, line %d: %s", p.file, n.Line, fmt.Sprintf(format, args...)))
}

// field reads the value of a key.
type field func(value *yaml.Node, key string)

// fields reads a mapping with known keys only.
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
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool {
		return name == "auths" || name == "token" // outdated: they are read, but not recommended
	})
	return " (there are: " + strings.Join(names, ", ") + ")"
}

// entries calls each for the keys of a mapping. Null is an empty mapping.
func (p *parser) entries(n *yaml.Node, at string, each func(name, value *yaml.Node, key string)) {
	p.merge(n, at, map[*yaml.Node]bool{}, map[string]bool{}, each)
}

// merge is entries for a mapping that others include with YAML's "<<". Keys in had, of the including mappings, go before its own. within are
// the including mappings, to find cycles.
func (p *parser) merge(n *yaml.Node, at string, within map[*yaml.Node]bool, had map[string]bool, each func(name, value *yaml.Node, key string)) {
	n = target(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode || within[n] {
		p.fail(n, at, "this has to be a list of keys with values")
		return
	}
	within[n] = true
	defer delete(within, n)
	var brought []*yaml.Node
	here := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], target(n.Content[i+1])
		key := shown(name.Value)
		if at != "" {
			key = at + "." + key
		}
		switch {
		case name.Tag == "!!merge" && value.Kind == yaml.SequenceNode:
			brought = append(brought, value.Content...)
		case name.Tag == "!!merge":
			brought = append(brought, value)
		case here[name.Value]:
			p.fail(name, key, "this is there twice")
		case !had[name.Value]:
			each(name, value, key)
		}
		here[name.Value] = true
	}
	maps.Copy(had, here)
	for _, more := range brought {
		p.merge(more, at, within, had, each)
	}
}

// shown is a key as messages show it. Where a quotation mark or a brace is missing, a key may contain what was meant to be values, even a password.
func shown(key string) string {
	if strings.ContainsAny(key, " \t\r\n\"'") {
		return "(a key with blanks or quotation marks)"
	}
	return key
}

// target resolves an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// text returns a scalar; null is "".
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
