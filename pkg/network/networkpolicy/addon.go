package networkpolicy

import (
	_ "embed" // the manifest
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/pkg/network/portguard/admit"
)

//go:embed network-policy.yaml
var manifest []byte

// Status is what coracle reports of the network policies on a node.
type Status struct {
	Policies     int       `json:"policies"`          // in the whole cluster
	IsolatedPods int       `json:"isolatedPods"`      // on this node
	Written      time.Time `json:"written,omitzero"`  // when one of these numbers changed
	Took         float64   `json:"took,omitempty"`    // seconds that it took to write the rules then
	Problem      string    `json:"problem,omitempty"` // what is not in force, and why
}

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "network-policy", About: "policies of this node's pods", Manifest: manifest,
		Report: state.NewReport("network-policy", state.EachNode, "Policies", lines, judge),
		Unsupported: func(cfg config.Config) string {
			if cfg.Network.Backend == config.BackendNone {
				return "another CNI plugin enforces network policies"
			}
			return ""
		},
		Node: func(n addon.Node) ([]addon.Component, error) {
			dirs := n.Config.Dirs
			return []addon.Component{{Name: "network-policy", After: []addon.Event{addon.Containerd}, BeforePods: true, Component: NetworkPolicy{
				Node: n.Config.Node.Name, Kubeconfig: n.Kubeconfig, API: n.API, Network: n.Config.Network.ClusterCIDRs, Bridge: n.Bridge,
				Socket: dirs.PolicySocket(), CRI: dirs.ContainerdSocket(),
				Leases: filepath.Join(dirs.CNIState(), "coracle"), IsolationFile: dirs.PolicyRecall(),
				Report: func(s Status) { n.Report(s) },
			}}}, nil
		},
		DisabledNode: removeTables,
		Admission: func(config.Config) *addon.Admission {
			return &addon.Admission{Name: admit.Name, New: func() admission.Interface { return admit.New() }}
		},
	}
}

// Socket is where the CNI plugin reports pods, "" if network policies are not enforced.
func Socket(cfg config.Config) string {
	if !footprint.NetworkPolicies(cfg) {
		return ""
	}
	return cfg.Dirs.PolicySocket()
}

// removeTables removes the nft tables of an earlier start.
func removeTables() error { return nft.Remove(footprint.PolicyTable, footprint.PolicyBridgeTable) }

func lines(s Status) []string {
	switch {
	case s.Problem != "":
		return []string{"NOT IN FORCE: " + s.Problem}
	case s.Policies == 0:
		return nil
	}
	return []string{fmt.Sprintf("%d, for %d pods of this node", s.Policies, s.IsolatedPods)}
}

func judge(s Status) ([]state.Problem, string) {
	if s.Problem != "" {
		return []state.Problem{{Text: "policies are not in force: " + s.Problem, Fix: "coracle logs --component network-policy", Fails: true}}, ""
	}
	return nil, fmt.Sprintf("%d policies, %d pods of this node are isolated", s.Policies, s.IsolatedPods)
}
