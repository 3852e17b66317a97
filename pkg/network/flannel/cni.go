package flannel

import (
	"encoding/json"
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/network/portguard"
)

// CNI is the CNI configuration list for pods on the bridge. It does not contain the subnet, so it can be written before containerd
// starts, which looks for it at once and then only every five seconds. The plugin waits for the subnet file.
type CNI struct {
	File       string // where the list is written
	Bridge     string
	SubnetFile string
	StateDir   string // directory of the leases
	// PolicySocket is the socket for events of pods, see package cnievents; "" is none.
	PolicySocket string
}

// plugin is one entry of a configuration list.
type plugin struct {
	Type         string          `json:"type"`
	Bridge       string          `json:"bridge,omitempty"`
	SubnetFile   string          `json:"subnetFile,omitempty"`
	DataDir      string          `json:"dataDir,omitempty"`
	PolicySocket string          `json:"policySocket,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// Render returns the list.
func (c CNI) Render() ([]byte, error) {
	data, err := json.MarshalIndent(struct {
		CNIVersion string   `json:"cniVersion"`
		Name       string   `json:"name"`
		Plugins    []plugin `json:"plugins"`
	}{"1.0.0", "coracle", []plugin{
		{Type: "coracle", Bridge: c.Bridge, SubnetFile: c.SubnetFile, DataDir: c.StateDir, PolicySocket: c.PolicySocket,
			Capabilities: map[string]bool{portguard.AnnotationsCapability: true, "portMappings": true, "bandwidth": true}},
	}}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// Write writes the list.
func (c CNI) Write() error {
	data, err := c.Render()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(c.File, data, 0o600); err != nil {
		return fmt.Errorf("writing the CNI configuration: %w", err)
	}
	return nil
}
