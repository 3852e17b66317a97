package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// PrintAs writes a value as json or yaml.
func PrintAs(w io.Writer, format string, value any) error {
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetIndent("", "  ")
	err := e.Encode(value)
	text := data.Bytes()
	if err == nil && format == "yaml" {
		text, err = asYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// asYAML converts JSON to YAML in block style, with the keys in the same order.
func asYAML(data []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	unfold(&doc)
	return yaml.Marshal(&doc)
}

func unfold(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		unfold(c)
	}
}
