// Package gateway serves Ingresses without a pod: on each server, a process of its own, with Caddy as a library (package
// pkg/network/gateway/dataplane), serves what the control plane leaves for it. This package is the side of the control plane: Controller, on
// each server, translates the objects of the API, and Status, on the server that leads, writes what came of it.
//
// Everybody's requests are parsed in that process, which has no credential of the cluster; and nothing of it is there until there is an Ingress.
package gateway

import (
	_ "embed" // the manifest
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

//go:embed gateway.yaml
var manifest []byte

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "gateway", About: "Ingresses", Manifest: manifest,
		Report: state.NewReport("ingresses", state.LeadingServer, "Ingress", lines, judge),
		ControlPlane: func(s addon.Server) []addon.Component {
			shared := newOutcome()
			return []addon.Component{
				{Name: "gateway", Component: Controller{
					Kubeconfig: s.Kubeconfig, Dir: gateway.Dir(s.Config.Dirs.Gateway()), Node: s.Config.Node.IPs, outcome: shared,
				}},
				{Name: "gateway-status", After: []addon.Event{addon.Leading}, Component: Status{
					Kubeconfig: s.Kubeconfig, Self: s.Config.Node.Name, Report: func(r Report) { s.Report(r) }, outcome: shared,
				}},
			}
		},
	}
}

// Report is what coracle reports of Ingresses.
type Report struct {
	Served   int       `json:"served"`
	Problems []Problem `json:"problems,omitempty"`
	Others   int       `json:"others,omitempty"` // Ingresses with problems that are not in Problems
}

// Problem is why something of an Ingress is not served as it was meant.
type Problem struct {
	Ingress string `json:"ingress"` // NAMESPACE/NAME
	Text    string `json:"text"`
}

func lines(r Report) (out []string) {
	if r.Served == 0 {
		return nil
	}
	out = append(out, fmt.Sprintf("%d are served", r.Served))
	for _, p := range r.Problems {
		out = append(out, p.Ingress+": "+p.Text)
	}
	if r.Others > 0 {
		out = append(out, fmt.Sprintf("%d others have problems", r.Others))
	}
	return out
}

func judge(r Report) (problems []state.Problem, fine string) {
	const fix = "coracle kubectl describe ingress"
	for _, p := range r.Problems {
		problems = append(problems, state.Problem{Text: fmt.Sprintf("Ingress %s: %s", p.Ingress, p.Text), Fix: fix})
	}
	if r.Others > 0 {
		problems = append(problems, state.Problem{Text: fmt.Sprintf("%d other Ingresses have problems", r.Others), Fix: fix})
	}
	return problems, fmt.Sprintf("%d Ingresses are served", r.Served)
}
