package main

import "github.com/containernetworking/cni/pkg/skel"

// upstream are the standard plugins by type. A full build (scripts/build) replaces this file by one that has them:
// they are commands upstream, and a plain `go build` cannot import a command.
func upstream() map[string]func() { return map[string]func(){} }

// bridgeVerbs are the bridge plugin's verbs, to be called within this process, if this build has them.
func bridgeVerbs() (skel.CNIFuncs, bool) { return skel.CNIFuncs{}, false }
