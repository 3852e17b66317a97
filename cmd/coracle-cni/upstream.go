package main

import "github.com/containernetworking/cni/pkg/skel"

// upstream returns upstream's plugins by type. A full build (scripts/build) replaces this file with one that has them: upstream they are
// packages main, which a plain `go build` cannot import.
func upstream() map[string]func() { return map[string]func(){} }

// verbs returns the functions of upstream's plugins that type "coracle" calls within this process, by type, if this build has them.
func verbs() map[string]skel.CNIFuncs { return nil }
