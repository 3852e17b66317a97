// Package gateway serves Ingresses and Gateways without a pod: on each server, a process of its own, with Caddy as a library (package
// pkg/network/gateway/dataplane), serves what the control plane leaves for it. This package is the side of the control plane: Controller, on
// each server, translates the objects of the API, and Status, on the server that leads, writes what came of it.
//
// Everybody's requests are parsed in that process, which has no credential of the cluster; and nothing of it is there until there is an Ingress or a Gateway.
package gateway

import (
	_ "embed" // the manifest
	"fmt"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

//go:embed gateway.yaml
var manifest []byte

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "gateway", About: "Ingresses and Gateways", Manifest: manifest,
		Report: state.NewReport("ingresses", state.LeadingServer, "Ingress", lines, judge),
		ControlPlane: func(s addon.Server) []addon.Component {
			shared, dir := newOutcome(), gateway.Dir(s.Config.Dirs.Gateway())
			kube.BridgeMetricsOf(metricsOf(dir), gateway.MetricsPrefix)
			all := []addon.Component{
				{Name: "gateway", Component: Controller{
					Kubeconfig: s.Kubeconfig, Dir: dir, Node: s.Config.Node.IPs, Addresses: s.Addresses, Shares: s.Shares, Classes: s.Config.Network.IngressClasses, ACME: s.Config.ACME.Enabled(),
					LogRequests: s.Config.Network.LogRequests, Proxies: s.Config.Network.Proxies, HTTP3: s.Config.Network.HTTP3, outcome: shared,
				}},
				{Name: "gateway-status", After: []addon.Event{addon.Leading}, Component: Status{
					Kubeconfig: s.Kubeconfig, Self: s.Config.Node.Name, Classes: s.Config.Network.IngressClasses, Report: func(r Report) { s.Report(r) }, Addresses: s.Addresses, outcome: shared,
				}},
			}
			if s.Config.ACME.Enabled() {
				all = append(all, addon.Component{Name: "gateway-acme", After: []addon.Event{addon.Leading}, Component: Issuer{
					Kubeconfig: s.Kubeconfig, Self: s.Config.Node.Name, ACME: s.Config.ACME, outcome: shared,
				}})
			}
			return all
		},
		Node: func(n addon.Node) ([]addon.Component, error) {
			if n.Config.Role == config.Server {
				return nil, nil
			}
			return []addon.Component{{Name: "gateway", Component: agentOf(n)}}, nil
		},
	}
}

// Report is what coracle reports of Ingresses and Gateways.
type Report struct {
	Served   int       `json:"served"` // Ingresses
	Gateways int       `json:"gateways,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	Others   int       `json:"others,omitempty"` // objects with problems that are not in Problems
}

// Problem is why something of an object is not served as it was meant.
type Problem struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // NAMESPACE/NAME
	Text string `json:"text"`
}

func lines(r Report) (out []string) {
	if r.Served > 0 {
		out = append(out, fmt.Sprintf("%d Ingresses are served", r.Served))
	}
	if r.Gateways > 0 {
		out = append(out, fmt.Sprintf("%d Gateways are served", r.Gateways))
	}
	for _, p := range r.Problems {
		out = append(out, fmt.Sprintf("%s %s: %s", p.Kind, p.Name, p.Text))
	}
	if r.Others > 0 {
		out = append(out, fmt.Sprintf("%d others have problems", r.Others))
	}
	return out
}

func judge(r Report) (problems []state.Problem, fine string) {
	for _, p := range r.Problems {
		namespace, name, _ := strings.Cut(p.Name, "/")
		problems = append(problems, state.Problem{
			Text: fmt.Sprintf("%s %s: %s", p.Kind, p.Name, p.Text),
			Fix:  fmt.Sprintf("coracle kubectl describe %s --namespace %s %s", strings.ToLower(p.Kind), namespace, name),
		})
	}
	if r.Others > 0 {
		problems = append(problems, state.Problem{Text: fmt.Sprintf("%d other Ingresses, Gateways or routes have problems", r.Others), Fix: "coracle kubectl get events --all-namespaces"})
	}
	return problems, fmt.Sprintf("%d Ingresses and %d Gateways are served", r.Served, r.Gateways)
}
