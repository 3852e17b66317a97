package main

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// ipamMain is CNI type "coracle-ipam", the answer to the bridge plugin's question for an address: what type "coracle"
// leased before it called bridge. It remembers nothing, so there is nothing to release or to check.
func ipamMain() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: ipamAdd, Check: nothing, Del: nothing}, version.All,
		"coracle-ipam: part of the CNI plugin coracle")
}

func ipamAdd(args *skel.CmdArgs) error {
	var c struct {
		CNIVersion string `json:"cniVersion"`
		IPAM       struct {
			Result *current.Result `json:"result"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return fmt.Errorf("reading network configuration: %w", err)
	}
	if c.IPAM.Result == nil {
		return fmt.Errorf("network configuration has no leased addresses: type coracle-ipam is for type coracle only")
	}
	return types.PrintResult(c.IPAM.Result, c.CNIVersion)
}
