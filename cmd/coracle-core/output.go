package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// exitCode ends coracle with this code and without a word: everything has been said.
type exitCode int

// Error is empty: there is nothing to print.
func (exitCode) Error() string { return "" }

// outputFlag adds -o with the given choices; the empty text is the form for people.
func outputFlag(c *cobra.Command, choices ...string) *string {
	f := &choice{choices: choices}
	c.Flags().VarP(f, "output", "o", "Output format, one of: "+oneOf(choices)+" (default is a table for people)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	return &f.value
}

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	choices []string
}

// String, Set and Type make choice a pflag.Value.
func (f *choice) String() string { return f.value }

// Set takes one of the choices.
func (f *choice) Set(value string) error {
	if !slices.Contains(f.choices, value) {
		return fmt.Errorf("must be one of %s", oneOf(f.choices))
	}
	f.value = value
	return nil
}

// Type is what help calls the value.
func (f *choice) Type() string { return "format" }

// oneOf writes a choice for help: json|yaml.
func oneOf(choices []string) string { return strings.Join(choices, "|") }

// printAs writes a value as json or yaml.
func printAs(w io.Writer, format string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}
