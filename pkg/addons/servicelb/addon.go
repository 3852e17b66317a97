package servicelb

import (
	_ "embed" // the manifest
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

//go:embed servicelb.yaml
var manifest []byte

// LoadBalancer is what coracle reports of a Service of type LoadBalancer.
type LoadBalancer struct {
	Service   string   `json:"service"` // NAMESPACE/NAME
	Addresses []string `json:"addresses"`
	// Problem says why addresses of some or all nodes are missing.
	Problem string `json:"problem,omitempty"`
}

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "servicelb", About: "Services of type LoadBalancer", Manifest: manifest,
		Report:       state.NewReport("load-balancers", state.LeadingServer, "LoadBalancer", lines, judge),
		ControlPlane: balancers, Admission: newAdmission,
		Disabled: func(s addon.Server) []addon.Component {
			// As the administrator, because the role of system:coracle is pruned with the manifest.
			return []addon.Component{
				{Name: "servicelb-removal", Component: Removal{Kubeconfig: s.Admin}, After: []addon.Event{addon.Leading}},
				{Name: "lb-owners", Component: Announced{Voter: s.Voter, Gateways: s.Addresses}},
				{Name: "service-ports", Component: Existing{Kubeconfig: s.Admin, Config: s.Config}, After: []addon.Event{addon.Leading}},
			}
		},
		Node: func(n addon.Node) ([]addon.Component, error) {
			ports := Ports{Node: n.Own, Kubeconfig: n.Kubelet}
			return []addon.Component{{Name: "lb-ports", Component: ports, After: []addon.Event{addon.Registered, addon.KubeletUser}}}, nil
		},
	}
}

func balancers(s addon.Server) []addon.Component {
	existing := Existing{Kubeconfig: s.Kubeconfig, Config: s.Config}
	announced := Announced{Kubeconfig: s.Kubeconfig, Pools: poolsOf(s.Config), Voter: s.Voter, Gateways: s.Addresses}
	return []addon.Component{{Name: "service-ports", After: []addon.Event{addon.Leading}, Component: existing}, {Name: "lb-owners", Component: announced}, {Name: "servicelb", After: []addon.Event{addon.Leading}, Component: Balancers{
		Kubeconfig:   s.Kubeconfig,
		Self:         s.Config.Node.Name,
		Reserved:     reservedPorts(s.Config),
		NodePorts:    s.Config.Network.NodePorts,
		Pools:        poolsOf(s.Config),
		Ping:         s.Ping,
		Gateways:     s.Addresses,
		NoConnection: func(err error) bool { return errors.Is(err, tunnel.ErrNoTunnel) },
		Report:       func(all []LoadBalancer) { s.Report(all) },
	}}}
}

// reservedPorts are the ports of coracle that other machines have to reach.
func reservedPorts(cfg config.Config) []Reserved {
	all := []Reserved{
		{Port: cfg.API.Port, Protocol: corev1.ProtocolTCP, Holder: "coracle (API server)", ServersOnly: true},
		{Port: 2380, Protocol: corev1.ProtocolTCP, Holder: "coracle (etcd)", ServersOnly: true},
		{Port: 10250, Protocol: corev1.ProtocolTCP, Holder: "coracle (kubelet)"},
	}
	switch cfg.Network.Backend {
	case config.VXLAN:
		all = append(all, Reserved{Port: 8472, Protocol: corev1.ProtocolUDP, Holder: "coracle (vxlan)"})
	case config.WireGuard:
		for _, port := range []uint16{51820, 51821} {
			all = append(all, Reserved{Port: port, Protocol: corev1.ProtocolUDP, Holder: "coracle (wireguard)"})
		}
	}
	return all
}

func lines(all []LoadBalancer) (out []string) {
	served := 0
	for _, l := range all {
		if len(l.Addresses) > 0 {
			served++
		}
		if l.Problem != "" {
			out = append(out, l.Service+": "+l.Problem)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("%d of %d Services have addresses", served, len(all))}, out...)
}

func judge(all []LoadBalancer) (problems []state.Problem, fine string) {
	for _, l := range all {
		text := ""
		switch {
		case len(l.Addresses) == 0:
			text = fmt.Sprintf("Service %s has no address: %s", l.Service, l.Problem)
		case l.Problem != "":
			text = fmt.Sprintf("Service %s lacks some addresses: %s", l.Service, l.Problem)
		default:
			continue
		}
		problems = append(problems, state.Problem{Text: text, Fix: "coracle kubectl describe service"})
	}
	return problems, fmt.Sprintf("%d Services of type LoadBalancer have addresses", len(all))
}
