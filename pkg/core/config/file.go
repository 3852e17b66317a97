package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mergeFile merges the settings of a file over those of files with lower precedence.
func mergeFile(role Role, table []setting, file string, data []byte, p *problems) {
	top, err := parseFile(file, data)
	if err != nil {
		p.add("%w", err)
		return
	}
	byName := map[string]setting{}
	for _, s := range table {
		byName[s.name] = s
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, node := top.Content[i], top.Content[i+1]
		at := fmt.Sprintf("%s:%d", file, key.Line)
		name, appends := strings.CutSuffix(key.Value, "+")
		s, ok := byName[name]
		switch first := seen[name]; {
		case !ok:
			p.add("%s: unknown key %s%s", at, key.Value, hint(role, table, name, ""))
		case first != 0:
			p.add("%s: %s is already in line %d; give all its values there", at, key.Value, first)
		case name == "config":
			p.add("%s: config cannot be set in a file", at)
		case appends && !s.many():
			p.add("%s: %s takes one value, so there is nothing to append to; write %s", at, name, name)
		default:
			mergeKey(s, node, at, appends, p)
		}
		seen[name] = key.Line
	}
}

// yamlLine matches the line number in errors of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?:unmarshal errors:\s*)?`)

// parseFile returns the mapping in a file, an empty one for an empty file.
func parseFile(file string, data []byte) (*yaml.Node, error) {
	var doc, second yaml.Node
	decode := yaml.NewDecoder(bytes.NewReader(data))
	err := decode.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return &yaml.Node{}, nil
	}
	if err != nil {
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			file += ":" + m[1]
		}
		return nil, fmt.Errorf("%s: reading YAML: %s", file, yamlLine.ReplaceAllString(err.Error(), ""))
	}
	if decode.Decode(&second) == nil {
		return nil, fmt.Errorf("%s:%d: a second YAML document; put all settings into one", file, second.Line)
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return &yaml.Node{}, nil // nothing but comments
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: expected settings, one a line as in \"node-name: edge-1\"", file, top.Line)
	}
	return top, nil
}

// mergeKey merges the value of a key over that of layers with lower precedence.
func mergeKey(s setting, node *yaml.Node, at string, appends bool, p *problems) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	items, err := itemsOf(s, node, at)
	if err != nil {
		p.add("%s: %s: %w", at, s.name, err)
		return
	}
	if s.collected.layer > fromFile {
		return
	}
	if appends {
		items = append(s.collected.items[:len(s.collected.items):len(s.collected.items)], items...)
	}
	s.collected.put(items, fromFile)
}

// itemsOf parses a YAML value by the setting's kind.
func itemsOf(s setting, node *yaml.Node, at string) ([]item, error) {
	from := origin{fromFile, at}
	if node.Kind == yaml.SequenceNode && s.many() {
		var items []item
		for i, n := range node.Content {
			file, _, _ := cutLast(at, ":")
			from.where = fmt.Sprintf("%s:%d", file, n.Line)
			if n.Kind == yaml.AliasNode {
				n = n.Alias
			}
			if err := checkScalar(setting{kind: text}, n); err != nil {
				return nil, fmt.Errorf("item %d: %w", i+1, err)
			}
			items = append(items, s.split(n.Value, from)...)
		}
		return items, nil
	}
	if err := checkScalar(s, node); err != nil {
		return nil, err
	}
	return s.split(node.Value, from), nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// checkScalar returns an error if a YAML value is not of the setting's type.
func checkScalar(s setting, node *yaml.Node) error {
	want := map[kind]string{text: "one value", list: "a list or one value", lines: "a list or one value", toggle: "true or false"}[s.kind]
	switch {
	case node.Kind == yaml.MappingNode:
		return fmt.Errorf("expected %s, found a mapping", want)
	case node.Kind == yaml.SequenceNode:
		return fmt.Errorf("expected %s, found a list", want)
	case node.Tag == "!!null":
		return fmt.Errorf("it has no value; give one or remove the key")
	case s.kind == toggle && node.Tag != "!!bool":
		return fmt.Errorf("expected %s, found %q", want, node.Value)
	case s.kind != toggle && node.Tag == "!!bool":
		return fmt.Errorf("expected %s, found a boolean; quote it if it is meant as text", want)
	}
	return nil
}
