package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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

// OutputFlag adds -o with one of several formats. The empty one is text for people.
func OutputFlag(c *cobra.Command, format string, formats ...string) *string {
	usage := "Output format, one of: " + strings.Join(formats, "|")
	if format == "" {
		usage += " (default is text for people)"
	}
	return ChoiceFlag(c, "output", "o", format, usage, formats...)
}
