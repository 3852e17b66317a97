package node

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// addPolicies enters network policies into g, and returns what pods have to wait for.
func addPolicies(g *lifecycle.Group, cfg config.Config, report *state.Recorder, who identities, gate *kube.APIGate, cri *lifecycle.Unit) []*lifecycle.Unit {
	if !footprint.NetworkPolicies(cfg) {
		return nil
	}
	return []*lifecycle.Unit{g.Add("network-policy", networkpolicy.NetworkPolicy{
		Node: cfg.Node.Name, Kubeconfig: who.node, API: gate.Opened(), Network: cfg.Network.ClusterCIDRs, Bridge: footprint.Bridge,
		Socket: cfg.Dirs.PolicySocket(), CRI: cfg.Dirs.ContainerdSocket(),
		Leases: filepath.Join(cfg.Dirs.CNIState(), "coracle"), Recall: cfg.Dirs.PolicyRecall(),
		Report: func(s state.NetworkPolicy) { report.Detail(state.NetworkPolicyDetail, s) },
	}, cri)}
}

// policySocket is what the CNI plugin tells of pods; "" is nobody.
func policySocket(cfg config.Config) string {
	if !footprint.NetworkPolicies(cfg) {
		return ""
	}
	return cfg.Dirs.PolicySocket()
}

// forgetPolicies removes what an earlier start put in force, if nobody keeps it up to date any more.
func forgetPolicies(cfg config.Config) error {
	if footprint.NetworkPolicies(cfg) {
		return nil
	}
	tables, err := nft.Tables()
	if err != nil {
		return nil //nolint:nilerr // where the kernel lists no tables there is none of ours
	}
	for _, t := range tables {
		if t.Name != footprint.PolicyTable && t.Name != footprint.PolicyBridgeTable {
			continue
		}
		if err := t.Delete(); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing the network policies of an earlier start: %w", err)
		}
	}
	return nil
}
