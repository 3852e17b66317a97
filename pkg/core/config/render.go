package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// WriteTable prints settings with their origins for a terminal.
func WriteTable(w io.Writer, settings []Setting) error {
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tab, "NAME\tVALUE\tORIGIN")
	for _, s := range settings {
		value := strings.Join(s.Values, ",")
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\n", s.Name, value, s.Origin)
	}
	return tab.Flush()
}

// WriteYAML prints settings as a configuration file that gives the same values, each with its origin. It leaves out secrets and
// settings without a value.
func WriteYAML(w io.Writer, settings []Setting) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range settings {
		if s.secret || s.Name == configKey || len(s.Values) == 0 || s.Values[0] == "" {
			continue
		}
		node := s.node()
		node.LineComment = s.Origin
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: s.Name}
		doc.Content = append(doc.Content, key, node)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	encode := yaml.NewEncoder(w)
	encode.SetIndent(2)
	if err := encode.Encode(doc); err != nil {
		return fmt.Errorf("encoding settings: %w", err)
	}
	return encode.Close()
}

// node returns the setting's value in YAML.
func (s Setting) node() *yaml.Node {
	if !s.Many {
		return scalar(s.Values[0], s.Typed)
	}
	out := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range s.Values {
		out.Content = append(out.Content, scalar(v, false))
	}
	return out
}

// scalar returns a text, in quotes where YAML would parse it as another type.
func scalar(text string, typed bool) *yaml.Node {
	out := &yaml.Node{}
	out.SetString(text)
	if typed {
		out.Tag = "!!bool"
	}
	return out
}

// Example returns a configuration file with every key of a role, commented out.
func Example(role Role) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Settings of coracle %s. Uncomment what you change.\n", role)
	group := ""
	for _, s := range Defaults(role) {
		if s.Name == configKey {
			continue
		}
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n### %s\n", group)
		}
		value, err := s.example()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n# %s.%s\n#%s: %s\n", s.Help, exampleDefault(s), s.Name, value)
	}
	return b.String(), nil
}

// configKey is the only setting that a file cannot have.
const configKey = "config"

func exampleDefault(s Setting) string {
	if text, ok := strings.CutPrefix(s.Origin, "default: "); ok {
		return " Default: " + text + "."
	}
	return ""
}

// example returns the default in one line of YAML.
func (s Setting) example() (string, error) {
	switch {
	case len(s.Values) == 0 && s.Many:
		return "[]", nil
	case len(s.Values) == 0:
		return `""`, nil
	}
	var b bytes.Buffer
	if err := yaml.NewEncoder(&b).Encode(s.node()); err != nil {
		return "", fmt.Errorf("encoding %s: %w", s.Name, err)
	}
	return strings.TrimSpace(b.String()), nil
}
