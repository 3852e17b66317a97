package footprint

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

func has(entries []ledger.Entry, kind ledger.Kind, name string) bool {
	return slices.Contains(entries, ledger.Entry{Kind: kind, Name: name})
}

func TestOf(t *testing.T) {
	for name, tt := range map[string]struct {
		backend                          config.Backend
		disable                          []string
		bridge, vxlan, policy, kubeProxy bool
	}{
		"default":                 {backend: config.VXLAN, bridge: true, vxlan: true, policy: true, kubeProxy: true},
		"host-gw":                 {backend: config.HostGW, bridge: true, policy: true, kubeProxy: true},
		"other network":           {backend: config.BackendNone, kubeProxy: true},
		"without policies":        {backend: config.VXLAN, disable: []string{"network-policy"}, bridge: true, vxlan: true, kubeProxy: true},
		"without kube-proxy":      {backend: config.VXLAN, disable: []string{"kube-proxy"}, bridge: true, vxlan: true, policy: true},
		"another's whole network": {backend: config.BackendNone, disable: []string{"kube-proxy", "network-policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := Of(config.Config{Disable: tt.disable, Network: config.Network{Backend: tt.backend}})
			for what, got := range map[string][2]bool{
				"bridge": {has(all, ledger.Link, Bridge), tt.bridge}, "vxlan": {has(all, ledger.Link, VXLAN6), tt.vxlan},
				"policies": {has(all, ledger.NFTTable, PolicyBridgeTable), tt.policy}, "kube-proxy": {has(all, ledger.NFTTable, "ip6 kube-proxy"), tt.kubeProxy},
				"cgroups": {has(all, ledger.Cgroup, "/kubepods.slice"), true}, "logs": {has(all, ledger.Dir, PodLogs), true},
				"service link": {has(all, ledger.Link, ServiceLink), false}, // it is noted when it is needed
			} {
				if got[0] != got[1] {
					t.Errorf("%s: %t", what, got[0])
				}
			}
		})
	}
}

// TestPossible: without a ledger, reset removes what every configuration makes, but nothing that may be another program's.
func TestPossible(t *testing.T) {
	all := Possible(config.Config{})
	for _, e := range []ledger.Entry{{Kind: ledger.Link, Name: VXLAN}, {Kind: ledger.Link, Name: ServiceLink}, {Kind: ledger.NFTTable, Name: PolicyTable},
		{Kind: ledger.Mount, Name: NetNSDir}, {Kind: ledger.NFTRule, Name: "ip6 filter FORWARD"}} {
		if !slices.Contains(all, e) {
			t.Errorf("lacks %s %s", e.Kind, e.Name)
		}
	}
	cidr := config.Network{Backend: config.BackendNone, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}
	for _, e := range append(all, Possible(config.Config{Network: cidr})...) {
		if e.Kind == ledger.PodNetwork {
			t.Errorf("has %s %s, which is another pod network's", e.Kind, e.Name)
		}
		if e.Kind == ledger.Dir || e.Kind == ledger.Contents || e.Kind == ledger.Sysctl || e.Name == Kmsg || e.Name == MachineID {
			t.Errorf("has %s %s", e.Kind, e.Name)
		}
	}
	if !IsLink("cni0") || !IsLink("coracle0") || IsLink("eth0") || IsLink(PolicyTable) {
		t.Error("takes links for what they are not")
	}
}

// TestSysctls: the table has every kernel setting, and only the ledger can tell who made it.
func TestSysctls(t *testing.T) {
	for _, s := range Sysctls() {
		if !slices.ContainsFunc(Parts(), func(p Part) bool { return has(p.Shared, ledger.Sysctl, s.Name) }) {
			t.Errorf("no part has %s", s.Name)
		}
	}
}
