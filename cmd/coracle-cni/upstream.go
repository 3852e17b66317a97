package main

import "github.com/containernetworking/cni/pkg/skel"

// upstream returns upstream's plugins by type. A full build (scripts/build) replaces this file with one that has them: upstream they are
// packages main, which a plain `go build` cannot import.
func upstream() map[string]func() { return map[string]func(){} }

// bridgeVerbs returns the functions of the bridge plugin, if this build has them.
func bridgeVerbs() (skel.CNIFuncs, bool) { return skel.CNIFuncs{}, false }
