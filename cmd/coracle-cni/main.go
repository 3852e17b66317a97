// Command coracle-cni has all CNI plugins of coracle in one executable, which is called by plugin type: upstream's bridge, host-local,
// loopback, portmap and bandwidth, and coracle's own type "coracle", which leases addresses and delegates the rest to bridge.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	plugins := upstream()
	plugins["coracle"] = coracleMain
	if shaper, ok := verbs()["bandwidth"]; ok {
		plugins["bandwidth"] = func() {
			skel.PluginMainFuncs(boundedVerbs(shaper), version.VersionsStartingFrom("0.3.0"), "bandwidth: limits pods' rates")
		}
	}

	name := filepath.Base(os.Args[0])
	if _, ok := plugins[name]; !ok && len(os.Args) > 1 {
		name = os.Args[1]
	}
	run, ok := plugins[name]
	if !ok {
		known := slices.Sorted(maps.Keys(plugins))
		fmt.Fprintf(os.Stderr, "coracle-cni: no plugin %q; this file has %s\n", name, strings.Join(known, ", "))
		os.Exit(2)
	}
	run()
}
