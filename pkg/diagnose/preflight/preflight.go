// Package preflight finds out before the start whether this machine can run what the configuration asks for. It
// says what is missing and what to do about it, all at once. It changes nothing but to let the kernel load modules.
package preflight

import (
	"errors"
	"sync"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// check is one row of the table: what is looked at, and what is wrong with it. The error is a sentence that names
// the thing and the fix.
type check struct {
	name string
	run  func(config.Config) error
}

// privileges come first, one after the other: without them every other answer is wrong.
var privileges = []check{
	{"root", Root},
	{"capabilities", Capabilities},
	{"system calls", SystemCalls},
}

// checks are independent of each other and run at the same time.
var checks = []check{
	{"data directory", dataDir},
	{"run directory", runDir},
	{"secret files", SecretFiles},
	{"registries", Registries},
	{"ports", Ports},
	{"cgroups", Cgroups},
	{"namespaces, overlayfs", func(cfg config.Config) error { return Mounts(cfg.Dirs.Data) }},
	{"links, nftables", network},
	{"bridge netfilter", bridgeNetfilter},
	{"clock", Clock},
}

// Run makes every check. Warnings are handed to warn; everything else that is wrong is in the error, one line each.
func Run(cfg config.Config, warn func(error)) error {
	for _, p := range privileges {
		if err := p.run(cfg); err != nil {
			return err
		}
	}
	return run(cfg, checks, warn)
}

func run(cfg config.Config, table []check, warn func(error)) error {
	found := make([]error, len(table))
	var all sync.WaitGroup
	for i, c := range table {
		all.Go(func() { found[i] = c.run(cfg) })
	}
	all.Wait()
	var wrong []error
	for _, err := range found {
		var w Warning
		if errors.As(err, &w) {
			warn(err)
			continue
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}
