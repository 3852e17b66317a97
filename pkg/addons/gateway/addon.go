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
					Kubeconfig: s.Kubeconfig, Self: s.Config.Node.Name, Report: func(all []Ingress) { s.Report(all) }, outcome: shared,
				}},
			}
		},
	}
}

func lines(all []Ingress) (out []string) {
	if len(all) == 0 {
		return nil
	}
	out = append(out, fmt.Sprintf("%d are served", len(all)))
	for _, i := range all {
		if i.Problem != "" {
			out = append(out, i.Name+": "+i.Problem)
		}
	}
	return out
}

func judge(all []Ingress) (problems []state.Problem, fine string) {
	for _, i := range all {
		if i.Problem != "" {
			problems = append(problems, state.Problem{Text: i.String(), Fix: "coracle kubectl describe ingress"})
		}
	}
	return problems, fmt.Sprintf("%d Ingresses are served", len(all))
}
