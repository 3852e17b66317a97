package main

import (
	"cmp"
	"os"

	"github.com/coracle-dev/coracle/pkg/service"
	"github.com/coracle-dev/coracle/pkg/upgrade"
)

// findTarget finds the installed coracle that is meant.
func findTarget(name string) (upgrade.Target, upgrade.Manager, error) {
	m, err := service.Detect()
	if err != nil {
		return upgrade.Target{}, nil, err
	}
	t := upgrade.Target{Service: cmp.Or(name, "coracle"), Binary: "/usr/local/bin/coracle", Dirs: where{}.dirs()}
	_, err = os.Stat(t.Dirs.PKI())
	t.Server = err == nil
	return t, m, nil
}
