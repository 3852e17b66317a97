package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/version"
)

func printVersion(args []string) error {
	flags := pflag.NewFlagSet("version", pflag.ContinueOnError)
	if err := parse(flags, args); err != nil {
		return err
	}
	fmt.Println("coracle", version.Version)
	return nil
}
