package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/progress"
)

// Choice is the value of a flag that takes one of a few words.
type Choice struct {
	value string
	words []string
}

// String, Set and Type make Choice a pflag.Value.
func (c *Choice) String() string { return c.value }

// Set takes one of the words.
func (c *Choice) Set(value string) error {
	if !slices.Contains(c.words, value) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words, "|"))
	}
	c.value = value
	return nil
}

// Type is what help calls the value.
func (c *Choice) Type() string { return "string" }

// Words are what a shell offers.
func (c *Choice) Words() []string { return c.words }

// ChoiceFlag adds a flag that takes one of words.
func ChoiceFlag(c *cobra.Command, name, short, value, usage string, words ...string) *string {
	choice := &Choice{value: value, words: words}
	c.Flags().VarP(choice, name, short, usage)
	return &choice.value
}

// OutputFlag adds -o with one of several formats. The empty one is text.
func OutputFlag(c *cobra.Command, format string, formats ...string) *string {
	usage := "Output format, one of: " + strings.Join(formats, "|")
	if format == "" {
		usage += " (default is text for people)"
	}
	return ChoiceFlag(c, "output", "o", format, usage, formats...)
}

// Print writes a result in a format of OutputFlag: value as json or yaml, else what text writes.
func Print(w io.Writer, format string, value any, text func(io.Writer) error) error {
	if format == "json" || format == "yaml" {
		return PrintAs(w, format, value)
	}
	return text(w)
}

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

// Confirm asks for confirmation of what cannot be undone. Without a terminal it fails.
func Confirm(in io.Reader, out io.Writer, what string) error {
	f, ok := in.(*os.File)
	if !ok || !progress.IsTerminal(f) {
		return exitcode.Usagef("standard input is not a terminal, so this cannot be confirmed: give --yes")
	}
	fmt.Fprint(out, what+"Type yes to go on: ")
	answer, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}
