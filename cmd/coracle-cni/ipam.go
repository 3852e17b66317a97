package main

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// ipamMain is the CNI type "coracle-ipam", the IPAM plugin for bridge. It returns the addresses that type "coracle" leased before it
// called bridge. It has no state, so Del and Check do nothing.
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
